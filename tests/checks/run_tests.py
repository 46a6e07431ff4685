#!/usr/bin/env python3
"""Runs the test executables of one build folder and counts their test cases.

    tests/checks/run_tests.py build/dev [--scripts] [--jobs N] [--timeout S] [--counts FILE] [FOLDER...]

Each executable's output goes to BUILD/tests/FOLDER.log; of a failed one the failed assertions are shown at the end. A test that cannot run here (no
data, no GPU) prints a line "skipped: why" and counts as skipped, not as passed. --counts writes a line
"FOLDER passed failed skipped" each to FILE. --scripts runs tests/**/*_check.py as well, one case each; --exhaustive instead runs test cases tagged [.exhaustive] and
scripts named *_exhaustive_check.py. Exits 1 if anything failed, crashed, timed out, or if no test ran.
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time


def memory_folder():
    """A folder in memory for the executables' files, where there is room. Runs of training sync each file that they write, and
    would wait for a disk for as long as they compute."""
    memory = pathlib.Path("/dev/shm")
    room = memory.is_dir() and os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2e9
    return tempfile.TemporaryDirectory(prefix="cairn-tests-", dir=memory if room and "TMPDIR" not in os.environ else None)


def run(folder, executable, build, timeout, environment, files, selection):
    """Outcome of one executable: passed, failed, skipped, seconds, reason for a failure beyond its test cases, log."""
    log = build / "tests" / f"{folder}.log"
    start = time.monotonic()
    reason = ""
    with open(log, "w") as output:
        script = executable.endswith(".py")  # may start what it writes, which a folder in memory may not allow
        command = [sys.executable, executable] if script else [executable, "--durations", "yes", *selection]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, start_new_session=True,
                                   env=environment if script else {**environment, "TMPDIR": files})
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            reason = f"did not finish within {timeout} s"
    seconds = time.monotonic() - start
    text = log.read_text(errors="replace")
    skipped = len(re.findall(r"^\s*skipped: ", text, re.M))
    if found := re.search(r"^All tests passed \(.* in (\d+) test cases?\)", text, re.M):
        passed, failed = int(found[1]), 0
    elif found := re.search(r"^test cases: *(\d+)(.*)$", text, re.M):
        count = lambda word: int(m[1]) if (m := re.search(rf"(\d+) {word}", found[2])) else 0
        passed, failed = count("passed"), count("failed")
        skipped += count("skipped")
    elif executable.endswith(".py"):
        passed, failed = int(process.returncode == 0), int(process.returncode != 0)
    else:
        passed = failed = 0
    passed = max(passed - skipped, 0)
    if process.returncode < 0 and not reason:
        reason = f"ended by signal {signal.Signals(-process.returncode).name}"
    elif process.returncode != 0 and failed == 0 and not reason:
        reason = f"exit status {process.returncode}"
    elif passed + failed + skipped == 0 and not reason and not selection:
        reason = "no test ran"
    return folder, passed, failed + bool(reason and not failed), skipped, seconds, reason, log


def what_failed(log):
    """The failed assertions in an executable's output, each under its test's name; its last lines where there are none."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if not re.match(r"\d+\.\d+ s: ", line)]
    found, test = [], ""
    for at, line in enumerate(lines):
        if re.match(r"-{79}$", line) and at + 1 < len(lines) and lines[at + 1].strip():
            test = lines[at + 1]
        if re.match(r"\S+:\d+: FAILED:", line):
            end = next((i for i in range(at, len(lines)) if not lines[i].strip()), len(lines))
            found += [test, *lines[at:min(end, at + 20)]]
    return found[:80] or lines[-40:]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("folders", nargs="*", help="only these (default: all)")
    parser.add_argument("--jobs", type=int, default=1, help="executables at a time")
    parser.add_argument("--timeout", type=float, default=600, help="seconds an executable may take")
    parser.add_argument("--counts", type=pathlib.Path)
    parser.add_argument("--scripts", action="store_true")
    parser.add_argument("--exhaustive", action="store_true")
    options = parser.parse_args()

    if not (options.build / "tests" / "executables.txt").exists():
        sys.exit(f"{options.build} holds no tests: configure it with CAIRN_TESTS=ON, and Catch2 installed")
    listing = (options.build / "tests" / "executables.txt").read_text().split("\n")
    tests = [line.split(" ", 1) for line in listing if line]
    if options.scripts or options.exhaustive:
        root = pathlib.Path(__file__).resolve().parents[2]
        tests += [[script.stem, str(script)] for script in sorted((root / "tests").rglob("*_check.py"))
                  if script.stem.endswith("_exhaustive_check") == options.exhaustive]
    if options.folders:
        unknown = set(options.folders) - {folder for folder, _ in tests}
        if unknown:
            sys.exit(f"no tests named {', '.join(sorted(unknown))}; there are {', '.join(f for f, _ in tests)}")
        tests = [test for test in tests if test[0] in options.folders]
    # The largest first, which run longest: so that no core idles at the end.
    tests.sort(key=lambda test: -pathlib.Path(test[1]).stat().st_size if pathlib.Path(test[1]).exists() else 0)

    # Threads that wait must not spin while another executable works; undefined behaviour reports where it happened.
    # Runs do not measure the machine (tests/checks/program.py sees to that).
    environment = {"OMP_WAIT_POLICY": "passive", "CAIRN_CEILINGS": "0", "UBSAN_OPTIONS": "print_stacktrace=1",
                   "ASAN_OPTIONS": "detect_leaks=1:strict_string_checks=1", **os.environ}
    total, lines_of_counts, failures = [0, 0, 0], [], []
    width = max((len(folder) for folder, _ in tests), default=0)
    with memory_folder() as files, concurrent.futures.ThreadPoolExecutor(max(options.jobs, 1)) as pool:
        running = [pool.submit(run, *test, options.build, options.timeout, environment, files,
                               ["[exhaustive]"] if options.exhaustive else []) for test in tests]
        for done in concurrent.futures.as_completed(running):
            folder, passed, failed, skipped, seconds, reason, log = done.result()
            lines_of_counts.append(f"{'exhaustive/' * options.exhaustive}{folder} {passed} {failed} {skipped}")
            total = [total[0] + passed, total[1] + failed, total[2] + skipped]
            counts = f"{passed} passed, {failed} failed, {skipped} skipped"
            print(f"  {folder:{width}}  {counts}  {seconds:.1f} s  {reason}".rstrip(), flush=True)
            if failed:
                failures.append((folder, log))
        for folder, log in failures:  # last, where who shows the end of this output finds them
            print(f"{folder}, of {log}:")
            print("\n".join("    | " + line for line in what_failed(log)), flush=True)
    if options.counts:
        options.counts.write_text("".join(line + "\n" for line in lines_of_counts))
    return 1 if total[1] or not sum(total) else 0


if __name__ == "__main__":
    sys.exit(main())
