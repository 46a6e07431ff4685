#!/usr/bin/env python3
"""What a lab's in_train.cpp enters trains in the program train: every lab's solution, a few steps, beside the library's own.

    tests/checks/labs_in_train.py build/dev
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
build = pathlib.Path(sys.argv[1]).resolve()
workload = """
[data]
format = "cosmology"
[data.cosmology]
size = 8
channels = 1
volumes = 64
test_volumes = 16
[model]
kind = "mlp"
hidden = [16]
[optimizer]
kind = "sgd"
lr = 0.01
[train]
batch = 8
"""
pair = ("--set", "model.kind=student", "--set", "model.hidden=16")
kfac = ("--set", "optimizer.kind=student", "--set", "student.damping=1", "--set", "student.clip=0.001")
adam = ("--set", "parallel.zero_stage=1", "--set", "optimizer.lr=0.001")
# Lab: ranks and settings of pairs of runs, and by how much their losses may differ, relative to the loss. None: they
# must differ.
cases = {
    "01-tensors-and-sgd": [(1, ("--set", "model.kind=student", "--set", "optimizer.kind=student"), 1, (), 1e-4)],
    "02-ring-allreduce": [(2, ("--set", "compress.kind=student"), 2, (), 1e-5),
                          (2, ("--set", "compress.kind=student", "--set", "compress.algorithm=halving_doubling"), 2, (), 1e-5)],
    "03-compression": [(2, ("--set", "compress.kind=student"), 2, ("--set", "compress.kind=topk"), 1e-4),
                       (2, ("--set", "compress.kind=student", "--set", "compress.method=sign"), 2, (), None),
                       (2, ("--set", "compress.kind=student", "--set", "compress.method=powersgd"), 2, (), None)],
    "04-kfac": [(1, kfac, 1, (), None), (2, kfac, 1, kfac, 1e-3)],
    "06-sharding": [(2, ("--set", "optimizer.kind=student", *adam), 2, ("--set", "optimizer.kind=adam", *adam), 1e-3)],
    "07-cut-layers": [(2, ("--set", "parallel.tensor=2", *pair), 1, pair, 1e-4)],
}
failures = []


def check(condition, what, context=""):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n{context[-2000:]}")


def configured(folder, files):
    return subprocess.run(["cmake", "-S", str(root), "-B", str(folder), f"-DCAIRN_TRAIN_WITH={files}"], capture_output=True, text=True)


def bad_files(folder):
    """What cannot be is refused when CMake configures, in a build folder of its own."""
    for name in ("one", "two"):
        (folder / name).mkdir()
        (folder / name / "in_train.cpp").write_text("")
    for files, why in ((f"{folder}/none/in_train.cpp", "there is no file"), (f"{folder}/one", "is a folder"),
                       (f"{folder}/one/in_train.cpp;{folder}/two/in_train.cpp", "names two files in_train.cpp")):
        made = configured(folder / "build", files)
        check(made.returncode != 0 and why in " ".join(made.stderr.split()), f"CAIRN_TRAIN_WITH={files}: {why}", made.stderr)


def main():
    mpirun = shutil.which("mpirun")
    launch = [mpirun, "--oversubscribe", "--bind-to", "none"] + (["--allow-run-as-root"] if os.geteuid() == 0 else [])
    labs = sorted(path.parent.name for path in root.glob("labs/*/in_train.cpp"))
    check(labs == sorted(cases), f"labs with an in_train.cpp: {labs}")
    private = pathlib.Path(os.environ.get("CAIRN_LAB_PRIVATE") or root / "labs")
    for lab in [lab for lab in labs if not (private / lab / "solution").is_dir()]:
        print(f"skipped: {lab}: its solution is not here (CAIRN_LAB_PRIVATE)")
        labs.remove(lab)
    if not labs:
        return 0
    subprocess.run(["cmake", "--build", str(build), "--target", *(f"train_with_{lab}" for lab in labs)], check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "lab.toml").write_text(workload)

        def loss(lab, ranks, settings):
            program = [str(build / "tests" / f"train_with_{lab}"), "lab.toml", "--steps", "6", "--threads", "1", *settings]
            run = subprocess.run([*(launch + ["-np", str(ranks)] if ranks > 1 else []), *program], cwd=folder, capture_output=True, text=True,
                                 stdin=subprocess.DEVNULL, timeout=120)
            lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
            check(run.returncode == 0 and lines, f"{lab}: {' '.join(settings)} exits with {run.returncode}", run.stdout + run.stderr)
            return json.loads(lines[-1])["test_loss"] if lines else float("nan")

        for lab in labs:
            for ranks, settings, others, other_settings, most in cases.get(lab, []):
                if max(ranks, others) > 1 and not mpirun:
                    print(f"skipped: no mpirun, {lab} was not run on ranks")
                    continue
                mine, other = loss(lab, ranks, settings), loss(lab, others, other_settings)
                same = abs(mine - other) <= (most or 1e-6) * abs(other)
                check(mine == mine and same == (most is not None), f"{lab}: {' '.join(settings)} ends with {mine}, its counterpart with {other}")
        bad_files(folder)
    print("failed" if failures else "every lab trains in train")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
