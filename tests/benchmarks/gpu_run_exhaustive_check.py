#!/usr/bin/env python3
"""Checks benchmarks/gpu/run without a GPU, on programs that only pretend: records, calls that are cut short, programs that fail or hang, packs that do
not fit the machine."""

import argparse
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time

sys.dont_write_bytecode = True
root = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(root / "benchmarks"), str(root / "benchmarks" / "gpu")]
from session import CannotRecord, Failure, Session, TimeIsOver, alive  # noqa: E402

RUN = root / "benchmarks" / "gpu" / "run"
ROW = '{"kind": "conv 3x3", "phase": "backward", "calls": 16, "seconds": 0.02, "floor_seconds": 0.01, "bytes_floor": 0.004, "flops_floor": 0.01, "bound": "arithmetic"}'
STEP = ('{"loss": 1.5, "samples_per_s": 100, "seconds_a_step": 0.04, "driver_megabytes": 11, "pool_peak_megabytes": 10, "kfac_overhead": 0.1, '
        '"profile": {"gap_seconds": 0.002, "phases": {"forward": 0.018, "backward": 0.02}, "kinds": [' + ROW + '], "layers": []}}')

# Each notes that it ran, and does what FAKE_... asks for where its arguments match.
PRETENDS = """#!/bin/bash
echo "$(basename "$0") $*" >>"$FAKE_LOG"
[[ -z $FAKE_FAIL || "$0 $*" != *$FAKE_FAIL* ]] || { echo "as was asked" >&2; exit 3; }
exec 9>>"$FAKE_LOG.beside"; flock -s 9; [[ -z $FAKE_TIMED || "$0 $*" != *$FAKE_TIMED* ]] || flock -x -n 9 || { echo "it is timed, and others run" >&2; exit 3; }
[[ -z $FAKE_SLOW ]] || sleep "$FAKE_SLOW"
[[ -z $FAKE_HANG || "$0 $*" != *$FAKE_HANG* ]] || { echo $$ >"$FAKE_LOG.own"; sleep 1000 & echo $! >"$FAKE_LOG.child"; wait; }
"""
PROGRAMS = {
    "tests/cairn_gpu_laws": '[[ $1 == --list* ]] || echo "All tests passed (1 assertion in 1 test case)"',
    "benchmarks/gpu_kernels": """echo '{"gpu":"pretended","copy_gigabytes_per_s":1}'; echo '{"kernel":"k","seconds":2e-3,"roofline_share":0.5}'""",
    "benchmarks/gpu_step": f"echo '{STEP}'",
    "benchmarks/train": """out=""; cuda=""; for ((i = 1; i <= $#; i++)); do j=$((i + 1)); [[ ${!i} != --out ]] || out=${!j}; [[ ${!i} != --resume ]] || out=${!j}; done
if [[ -z $out ]]; then echo '{"samples_per_s": 7, "recorded_steps": 3}'; exit; fi
[[ -z $FAKE_DIFFERS || $* != *device=cuda* ]] || more=$RANDOM
mkdir -p "$out"; echo "{\\"loss\\": 0.2500$more}" >"$out/metrics.jsonl"; echo '{"result": {"skipped_steps": 0, "loss_scale": 1, "recorded_steps": 9}}' >"$out/record.json" """,
    "python": f"""[[ $1 != -c ]] || {{ echo 2.11; exit; }}
[[ $* != *torch_attention* ]] || {{ echo '{{"kernel":"k","implementation":"flash","seconds":1e-3}}'; exit; }}
echo '{STEP}'""",
    "smi/nvidia-smi": 'echo "NVIDIA H200, 580.159.04, 9.0"',
}


class Place:
    """A folder with such programs and a record."""

    def __init__(self, folder):
        self.folder, self.out, self.log = folder, folder / "record" / "gpu.json", folder / "log"
        for name, text in PROGRAMS.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(PRETENDS + text + "\n")
            path.chmod(0o755)
        (folder / "tmp").mkdir()

    def command(self, *arguments, build=True):
        return [sys.executable, str(RUN), *arguments, *(["--build", str(self.folder)] if build else []), "--out", str(self.out), "--python", str(self.folder / "python")]

    def environment(self, **more):
        self.log.write_text("")
        path = os.environ["PATH"] if more.pop("bare", False) else f"{self.folder}/smi:{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "TMPDIR": str(self.folder / "tmp"), "FAKE_LOG": str(self.log), "FAKE_FAIL": "", "FAKE_HANG": "", "FAKE_DIFFERS": "", "FAKE_TIMED": "", "FAKE_SLOW": "", **more}

    def run(self, *arguments, build=True, **more):
        return subprocess.run(self.command(*arguments, build=build), env=self.environment(**more), capture_output=True, text=True, timeout=300)

    def ran(self, of):
        return sum(of in line and "nvidia-smi" not in line for line in self.log.read_text().splitlines())

    def record(self):
        return json.loads(self.out.read_text())


def laws_there_are():
    return sum(file.read_text().count("\nTEST_CASE(") for file in (root / "tests" / "device" / "cuda" / "gpu_laws").glob("*.cu"))


def whole_and_again(place):
    parts = ("compiled", "laws", "train", "kernels", "step", "gpt", "volumes", "kfac", "autotuned")
    result = place.run(*parts, "--turns", "2", "--seeds", "2", FAKE_TIMED="gpu_step")
    assert result.returncode == 0, result.stdout + result.stderr
    record = place.record()
    assert record["gpu"] == "NVIDIA H200" and record["driver"] == "580.159.04" and record["torch"] == "2.11"
    laws = laws_there_are()
    assert len(record["parts"]["laws"]["results"]) == 2 * laws > 40 and place.ran("cairn_gpu_laws GPU") == 2 * laws
    assert record["parts"]["laws"]["finding"] == {"laws": laws, "held": 2 * laws}
    assert len({result["seed"] for result in record["parts"]["laws"]["results"].values()}) > laws, "seeds are drawn for each law"
    # turns, recorded ones and kfac; to fill the compiler's cache, turns and autotuned
    assert place.ran("gpu_step resnet50 256 bf16") == 2 + 2 + 2 and place.ran("torch_step.py resnet50 256 amp --compile") == 1 + 2 + 1
    assert place.ran("torch_step.py cosmoflow 8 amp --layout contiguous") == 1 and place.ran("gpu_step gpt 32 bf16 15 profile") == 2
    step = record["parts"]["step"]["finding"]
    assert step["samples_per_s"]["torch amp compiled"] == 100 and step["recorded_memory_beside_pool"]["cairn bf16"] == 1
    assert record["parts"]["kernels"]["finding"] == {"speed_beside_torch": {"k": 0.5}}
    assert record["parts"]["train"]["finding"]["recorded_alike"] is True
    assert record["parts"]["gpt"]["finding"]["most_to_gain"]["cairn bf16"] == {"conv 3x3, backward": 0.25}
    assert "to gain   10.000 ms, 25.0 % of the step" in result.stdout and "call 1, about" in result.stdout, result.stdout

    result = place.run(*parts, "--turns", "2", "--seeds", "2")  # all is there: nothing is run but the question for the GPU
    assert result.returncode == 0 and place.ran("gpu_") == 1 and place.ran("train") == 0, place.log.read_text()
    result = place.run("kernels", "--again")
    assert result.returncode == 0 and place.ran("gpu_kernels") == 1
    assert "done" in place.run("--plan", "laws", "--seeds", "2").stdout and place.ran("gpu_laws") == 0


def tiers(place):
    """One call of 8 minutes is planned to have the first two tiers; what is more telling runs first, and what is short runs where what is long does not fit."""
    said = place.run("--plan", "--pack", str(place.folder / "tests"), build=False).stdout
    first, second = [line for line in said.splitlines() if line.startswith("call ")][:2]
    assert f"(2) laws {4 * laws_there_are()}, ranks 2" in first and "(2)" not in second, said
    assert all(word in first for word in ("compiled 3", f"laws {laws_there_are()}", "train 8", "step 3", "gpt 3", "volumes 3", "kfac 1")), said
    place.run("step", "kfac", "--turns", "2")
    ran = [line.split() for line in place.log.read_text().splitlines() if line.startswith("gpu_step") or "torch_step" in line]
    tier = [4 if {"tf32", "fp16"} & set(line) or line[-1] == "eigen" else 1 for line in ran]
    assert tier == sorted(tier) and ran[0][:4] == ["gpu_step", "resnet50", "256", "bf16"] and ran[0][4:] == ["15", "profile"], ran

    session = Session(place.folder / "other.json", {"gpu": "g"}, "r", {}, minutes=1)
    run = importlib.machinery.SourceFileLoader("gpu_run", str(RUN)).load_module()
    programs = [("p", run.Program(name, seconds, lambda: 1)) for name, seconds in (("first", 1), ("long", 1e6), ("short", 1))]
    run.run_programs(session, False, programs)
    assert sorted(session.record["parts"]["p"]["results"]) == ["first", "short"]
    assert run.conclude(session, "p", run.Part([program for _, program in programs])) == 1


def together(place):
    """Laws run five at a time, and a program that is timed runs alone."""
    begin = time.monotonic()
    result = place.run("laws", "--seeds", "1", FAKE_SLOW="0.5")
    took = time.monotonic() - begin
    assert result.returncode == 0 and laws_there_are() * 0.5 / 5 < took < laws_there_are() * 0.5 / 2, took
    result = place.run("laws", "--again", "--seeds", "1", FAKE_FAIL="normalisation gives")
    assert result.returncode == 1 and "normalisation gives" in result.stderr
    part = place.record()["parts"]["laws"]
    assert len(part["results"]) == laws_there_are() - 1 and list(part["failed"]) == ["GPU: normalisation gives the results of plain loops"]
    process = subprocess.Popen(place.command("laws", "--again", "--seeds", "1"), env=place.environment(FAKE_HANG="GPU: "), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if place.ran("gpu_laws GPU") >= 5:
            break
        time.sleep(0.1)
    time.sleep(0.5)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) and not alive(int(pathlib.Path(f"{place.log}.child").read_text()))
    part = place.record()["parts"].get("laws", {"results": {}, "failed": {}})
    assert not part["failed"] and not part["results"], part


def failures_are_recorded(place):
    result = place.run("step", "kfac", "--turns", "3", FAKE_FAIL="amp --compile")
    assert result.returncode == 1 and "torch amp compiled 1" in result.stderr, result.stderr
    assert place.ran("amp --compile") == 1, "what failed is not tried in the next turns"
    part = place.record()["parts"]["step"]
    assert "as was asked" in part["failed"]["torch amp compiled 1"] and part["finding"]["samples_per_s"]["torch amp"] == 100
    assert len(part["results"]) == 3 * 11 and "finding" in place.record()["parts"]["kfac"]
    result = place.run("step", "--turns", "3")
    assert result.returncode == 0 and place.ran("") == 3 + 2, place.log.read_text()  # three turns; which torch, can the GPU be used
    assert not place.record()["parts"]["step"]["failed"]


def training_that_differs(place):
    result = place.run("train", "kernels", FAKE_DIFFERS="1")
    assert result.returncode == 1 and "differs from run to run" in result.stderr, result.stderr
    assert all(f"'{what}': False" in result.stderr for what in ("same_bits_twice", "resumed_alike", "fp16_resumed_alike", "fp16_recorded_alike"))
    assert "differs" in place.record()["parts"]["train"]["finding_failed"] and place.record()["parts"]["kernels"]["finding"]


def laws_that_do_not_run_are_not_passed(place):
    (place.folder / "tests" / "cairn_gpu_laws").write_text(PRETENDS + "echo 'No test cases matched'\n")
    result = place.run("laws")
    assert result.returncode == 1 and "no law says that it held" in result.stderr + result.stdout


def without_a_gpu(place):
    result = place.run("laws", bare=True)
    assert result.returncode == 2 and "no nvidia-smi" in result.stderr and not place.out.exists(), result.stderr
    (place.folder / "tests" / "cairn_gpu_laws").write_text(PRETENDS + "echo 'no test ran: CUDA: no NVIDIA driver' >&2; exit 77\n")
    result = place.run("laws", "train")
    assert result.returncode == 1 and result.stderr.count("no NVIDIA driver") == 1 and place.ran("train") == 0, result.stderr


def ended_from_outside(place):
    own, child = pathlib.Path(f"{place.log}.own"), pathlib.Path(f"{place.log}.child")
    for number in (signal.SIGKILL, signal.SIGTERM):
        process = subprocess.Popen(place.command("kfac"), env=place.environment(FAKE_HANG="gpu_step resnet50 256 fp16"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            if child.exists() and child.read_text():
                break
            time.sleep(0.1)
        process.send_signal(number)
        process.wait(timeout=30)
        for _ in range(100):  # a process whose parent was killed ends a little after it
            if not alive(int(own.read_text())):
                break
            time.sleep(0.1)
        else:
            raise AssertionError("the program goes on")
        assert process.returncode
        left = int(child.read_text())
        assert number == signal.SIGKILL or not alive(left), "what the program had started goes on"
        child.unlink()
        if alive(left):
            os.kill(left, signal.SIGKILL)
    assert sorted(place.record()["parts"]["kfac"]["results"]) == ["bf16 eigen", "bf16 inverse"]
    result = place.run("kfac")
    assert result.returncode == 0 and place.ran("gpu_step") == 4


def programs_that_hang(place):
    session = Session(place.out, {"gpu": "g"}, "r", {})
    starts = {"n": "trap '' TERM; setsid sleep 1000 &", "m": "setsid sleep 1000 &", "o": "(trap '' TERM; exec setsid sleep 1000) >/dev/null 2>&1 &"}
    for name, start in starts.items():
        try:
            session.once("p", name, 1, lambda: session.output_of(["bash", "-c", f"{start} echo $! > {place.log}; echo hello; wait"], 5))
            raise AssertionError("it did not end")
        except Failure as error:
            assert "ended after 5 s" in str(error) and "hello" in str(error)
        assert not alive(int(place.log.read_text())), "what it had started goes on"
    assert "hangs" in place.record()["parts"]["p"]["failed"]["n"]


def minutes_that_are_over(place):
    session = Session(place.out, {"gpu": "g"}, "r", {}, minutes=1)
    session.once("p", "first", 1e6, lambda: 1)  # the first of a call is always begun
    try:
        session.once("p", "long", 1e6, lambda: 2)
        raise AssertionError("a program was begun that does not fit")
    except TimeIsOver:
        pass
    session.end = time.monotonic() + 1
    try:
        session.once("p", "second", 0, lambda: session.output_of(["sleep", "1000"], 900))
        raise AssertionError("it did not end")
    except TimeIsOver:
        assert place.record()["parts"]["p"]["results"] == {"first": 1} and not place.record()["parts"]["p"]["failed"]


def records_do_not_mix(place):
    Session(place.out, {"gpu": "g"}, "r", {}).once("p", "n", 1, lambda: 1)
    assert Session(place.out, {"gpu": "g"}, "r", {}).record["parts"]["p"]["results"] == {"n": 1}
    for gpu, revision, settings, what in (("h", "r", {}, "another gpu"), ("g", "s", {}, "another revision"), ("g", "r", {"batch": 1}, "another settings")):
        try:
            Session(place.out, {"gpu": gpu}, revision, settings)
            raise AssertionError(what)
        except CannotRecord as error:
            assert what in str(error)
    place.out.write_text("[]")
    result = place.run("laws")
    assert result.returncode == 2 and "is no record of this program" in result.stderr and place.out.read_text() == "[]", result.stderr
    place.out = place.folder / "log" / "gpu.json"  # below a file
    result = place.run("laws")
    assert result.returncode == 2 and "give another --out" in result.stderr and place.ran("laws") == 0, result.stderr


def packs(place):
    def packed(**changes):
        told = {"commit": "c0ffee", "architectures": "90a", "host": "x86-64", "made_with": "", "outside": [], **changes}
        (place.folder / "pack.json").write_text(json.dumps(told))
        return place.run("kfac", "--pack", str(place.folder), build=False)

    result = packed()
    assert result.returncode == 0 and place.record()["revision"] == "c0ffee" and place.record()["pack"]["architectures"] == "90a", result.stderr
    result = packed(commit="decaf")
    assert result.returncode == 2 and "another revision" in result.stderr
    result = packed(outside=["libno.so.7"])
    assert result.returncode == 2 and "libno.so.7: in none of" in result.stderr
    for architectures in ("80;100", "80a", "100"):
        result = packed(architectures=architectures)
        assert result.returncode == 2 and "make one with" in result.stderr, result.stderr
    assert packed(architectures="80;90").returncode == 0
    place.out = place.folder / "archived.json"
    archive = place.folder / "p.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        for name in ("pack.json", "tests", "benchmarks"):
            file.add(place.folder / name, f"gpu-pack/{name}")
    result = place.run("kfac", "--pack", str(archive), build=False)
    assert result.returncode == 0, result.stderr
    archive.write_bytes(archive.read_bytes()[:200])
    result = place.run("kfac", "--pack", str(archive), build=False)
    assert result.returncode == 2 and "cannot be unpacked" in result.stderr, result.stderr


def bundles(place):
    """A pack of programs that do nothing starts by its launcher, with what it brings along, and says what it lacks."""
    loader = importlib.machinery.SourceFileLoader("pack", str(root / "benchmarks" / "gpu" / "pack"))
    pack = importlib.util.module_from_spec(importlib.util.spec_from_loader("pack", loader))
    loader.exec_module(pack)
    made, folder = place.folder / "made", place.folder / "gpu-pack"
    folder.mkdir()
    for name in pack.PROGRAMS:
        path = made / pack.packed.PLACES[name] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(shutil.which("grep"), path)  # which has a library besides the system's
    told = pack.bundle(argparse.Namespace(architecture="90a", host="x86-64"), made, folder)
    libraries = [name for name in pack.found_by_loader(shutil.which("grep")) if not pack.OF_THE_SYSTEM.match(name)]
    assert libraries and all((folder / "lib" / name).is_file() for name in libraries), told
    assert told["outside"] == [] and set(libraries) <= set(told["bundled"]) and tuple(map(int, told["c_library"].split("."))) >= (2, 2)
    for file in folder.rglob("*"):
        if file.is_file() and file.open("rb").read(4) == b"\x7fELF":
            lost = [name for name in pack.needs(file)[0] if not pack.OF_THE_SYSTEM.match(name) and not (folder / "lib" / name).is_file()]
            assert not lost, (file, lost)
    launch = [sys.executable, str(folder / "launch")]
    result = subprocess.run(launch, capture_output=True, text=True)
    assert result.returncode == 0 and result.stdout.split("found in\n  ")[1].startswith(f"{folder}/lib\n"), result.stderr
    result = subprocess.run([*launch, "train", "-P", "a(?=b)"], input="ab\nac\n", capture_output=True, text=True)
    assert result.stdout == "ab\n", result.stderr
    result = subprocess.run([*launch, "other"], capture_output=True, text=True)
    assert result.returncode == 1 and "other is not in the pack" in result.stderr
    if told["mpi"]:
        result = subprocess.run([*launch, "mpirun", "--version"], capture_output=True, text=True)
        assert "Open MPI" in result.stdout, result.stderr
    (folder / "pack.json").write_text(json.dumps({**told, "outside": ["libno.so.1"]}))
    result = subprocess.run(launch, capture_output=True, text=True)
    assert result.returncode == 1 and "libno.so.1: in none of" in result.stderr


def main():
    for check in (whole_and_again, tiers, together, failures_are_recorded, training_that_differs, laws_that_do_not_run_are_not_passed, without_a_gpu, ended_from_outside, programs_that_hang,
                  minutes_that_are_over, records_do_not_mix, packs, bundles):
        with tempfile.TemporaryDirectory() as folder:
            check(Place(pathlib.Path(folder)))
        print(f"{check.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
