#!/usr/bin/env python3
"""Checks benchmarks/stage: one copy of several calls, changed and damaged files, kills, a full disk, bad input."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from checks import BENCHMARKS, check, end  # noqa: E402

STAGE = [sys.executable, str(BENCHMARKS / "stage")]


def stage(*words, status=0, says=()):
    """What it said on stderr."""
    result = subprocess.run([*STAGE, *map(str, words)], capture_output=True, text=True, timeout=60)
    told = result.stderr + result.stdout
    check(result.returncode == status, f"stage {' '.join(map(str, words))} exits with {result.returncode}, expected {status}", told)
    for text in says:
        check(text in told, f"stage {' '.join(map(str, words))} says: {text}", told)
    return told


def contents(folder):
    return {os.path.relpath(os.path.join(at, name), folder): pathlib.Path(at, name).read_bytes() for at, _, names in os.walk(folder, followlinks=True) for name in names}


def beside(target):
    return sorted(path.name for path in target.with_name(target.name + ".stage").glob("*"))


def check_copies(folder, source):
    target = folder / "disk" / "data"
    several = [subprocess.Popen([*STAGE, str(source), str(target)], stderr=subprocess.PIPE, text=True) for _ in range(3)]
    told = [process.communicate()[1] for process in several]
    check([process.returncode for process in several] == [0, 0, 0], "three calls at once end well", told)
    check(sum("copied to" in text for text in told) == 1 and sum("nothing is copied" in text for text in told) == 2, "one of them copies", told)
    check(contents(target) == contents(source), "all is copied, through links too")
    check(beside(target) == ["lock", "manifest.json"], "beside it are lock and manifest alone", beside(target))
    (target / "a" / "one").write_bytes(b"shorter")
    stage(source, target, says=("1 files have changed", "copied anew: a/one"))
    check(contents(target) == contents(source), "a file of another size is copied anew")
    (target / "two").write_bytes(b"B" * len((source / "two").read_bytes()))
    stage(source, target, says=("nothing is copied",))
    stage(source, target, "--verify", says=("copied anew: two",))
    check(contents(target) == contents(source), "a damaged file is found by its checksum")
    (source / "two").write_bytes(b"changed"[::-1] * 1000)
    (source / "three").write_bytes(b"changed")
    stage(source, target)
    (source / "three").write_bytes(b"of size")
    (source / "new").write_bytes(b"n")
    (source / "a" / "one").unlink()
    stage(source, target, says=("copied anew: three", "1 removed there"))
    check(contents(target) == contents(source), "what has changed in the source is copied, what has gone is removed")
    stage(folder / "other", target, status=1, says=("is a copy of", "--remove"))
    said = stage(source, target, "--", "cat", target / "new")
    check(said.endswith("n"), "the command runs after it", said)
    stage(source, target, "--", "no-such-program", status=2, says=("no-such-program",))
    stage("--remove", target)
    check(not any((folder / "disk").iterdir()), "nothing is left when it is removed", list((folder / "disk").iterdir()))


def check_stops(folder):
    """Killed and stopped while it copies."""
    source, target = folder / "large", folder / "disk" / "large"
    source.mkdir()
    with (source / "zeros").open("wb") as file:
        file.truncate(200_000_000)
    part = target.with_name("large.stage") / "part" / "zeros"
    for number, status in ((signal.SIGTERM, 130), (signal.SIGUSR1, 130), (signal.SIGKILL, -9)):
        process = subprocess.Popen([*STAGE, str(source), str(target)], stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 20
        while not part.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        process.send_signal(number)
        told = process.communicate()[1]
        check(process.returncode == status and not target.exists(), f"signal {number} ends it before its end", f"{process.returncode} {told}")
        check(part.parent.parent.exists() == (number == signal.SIGKILL), f"only a killed one leaves something (signal {number})", beside(target))
    (part.parent / "rest").write_bytes(b"")
    with (source / "zeros").open("wb") as file:
        file.truncate(1000)
    stage(source, target, says=("copied to",))
    check(contents(target) == contents(source) and beside(target) == ["lock", "manifest.json"], "the next one removes what a killed one left", beside(target))
    holder = subprocess.Popen(["flock", str(part.parent.parent / "lock"), "sleep", "30"])
    time.sleep(0.1)
    stage(source, target, "--timeout", "1", status=1, says=("waits for another process", "for more than 1 s"))
    holder.terminate()
    holder.wait()


def check_refused(folder, source):
    stage(folder / "none", folder / "x", status=1, says=("no such folder",))
    (folder / "empty").mkdir()
    stage(folder / "empty", folder / "x", status=1, says=("no file in it",))
    stage(source, source / "in", status=1, says=("are in one another",))
    stage(source, folder / "other", status=1, says=("exists, and was not staged",))
    check((folder / "other" / "mine").exists(), "a folder that was not staged stays as it is")
    stage("--remove", folder / "other", status=1, says=("nothing is removed",))
    stage(source, status=2)
    stage("--remove", source, folder / "x", status=2)
    (folder / "other" / "dangling").symlink_to("nowhere")
    stage(folder / "other", folder / "x", status=1, says=("dangling",))
    (folder / "other" / "dangling").unlink()
    check(not (folder / "x").exists() and not (folder / "x.stage").exists(), "what is refused leaves nothing")


def check_full(folder, source):
    """A disk of 1 MB, and one with room for two files."""
    if os.geteuid():
        return print("  skipped: a full disk: root alone mounts one")
    disk = folder / "small"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=6", "none", disk], capture_output=True).returncode:
        return print("  skipped: a full disk: none can be mounted here")
    try:
        stage(source, disk / "data", status=1, says=("no space: 30.0 MB in", "are needed, 1.0 MB were free"))
        (source / "large").unlink()
        for number in range(8):
            (source / f"small-{number}").write_bytes(b"s")
        stage(source, disk / "data", status=1, says=("No space left on device", "are needed"))
        check(not any(disk.iterdir()), "nothing is left on a full disk", list(disk.rglob("*")))
    finally:
        subprocess.run(["umount", disk], check=True)


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        source = folder / "source"
        for path, text in (("source/a/one", b"1" * 5000), ("source/two", b"2" * 6000), ("linked/three", b"3"), ("other/mine", b"mine")):
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(text)
        (source / "link").symlink_to(folder / "linked")
        with (source / "large").open("wb") as file:  # so that calls meet
            file.truncate(30_000_000)
        check_refused(folder, source)
        check_copies(folder, source)
        check_stops(folder)
        check_full(folder, source)
    end("staging")


if __name__ == "__main__":
    main()
