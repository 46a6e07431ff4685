#!/usr/bin/env python3
"""Checks benchmarks/compare_peers with programs in place of train, its peers and mpirun that print figures known beforehand."""

import json
import pathlib
import subprocess
import sys
import tempfile

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "benchmarks" / "compare_peers"

# As train --throughput prints it; each run of bf16 is faster than the one before it.
TRAIN = """#!/usr/bin/env python3
import json, os, pathlib, sys
option = dict(zip(sys.argv[1:], sys.argv[2:]))
bf16 = option.get("--set") == "train.precision=bf16"
count = pathlib.Path(sys.argv[0] + ".runs")
runs = int(count.read_text()) if count.exists() else 0
if bf16: count.write_text(str(runs + 1))
print("a line before")
print(json.dumps({"samples_per_s": 300 + 100 * runs if bf16 else 200, "peak_bytes": 40 if bf16 else 60, "threads": int(option["--threads"]), "batch": 8,
                  "parameters": 5, "ranks": int(os.environ.get("RANKS", 1)), "memory": {"saved": 30 if bf16 else 60, "data": 20}}))
"""

TORCH_PEER = """#!/usr/bin/env python3
import json, sys
option = dict(zip(sys.argv[1::2], sys.argv[2::2]))
print(json.dumps({"samples_per_s": 100 if option["--layout"] == "default" else 80, "peak_bytes": 120, "batch": int(option["--batch"]),
                  "threads": int(option["--threads"]), "parameters": 5}))
"""

# A python3 that has torch, and runs torch_newest.py: bf16 in channels last is the fastest, compile has no compiler.
PYTHON = """#!/usr/bin/env python3
import json, sys
if sys.argv[1] == "-c": sys.exit()
option = dict(zip(sys.argv[2::2], sys.argv[3::2]))
mode, bf16, hook, system = option["--mode"], option["--precision"] == "bf16", "--comm-hook" in option, option["--allocator"] == "system"
if mode == "compile": sys.exit("torch_newest.py: no compiler")
print(json.dumps({"samples_per_s": 50 + 25 * bf16 + 25 * (mode == "channels_last") + 100 * hook, "peak_bytes": 50 if system else 80, "batch": int(option["--batch"]),
                  "threads": int(option["--threads"]), "ranks": int(option.get("--ranks", 1)), "parameters": PARAMETERS, "baseline_bytes": 10, "torch": "9.9"}))
"""

MPIRUN = """#!/bin/sh
RANKS=$2; shift 2; export RANKS; exec "$@"
"""


def program(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def main():
    failures = []

    def check(name, found, expected):
        if found != expected:
            failures.append(f"{name}: {found}, expected {expected}")

    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        train = folder / "benchmarks" / "train"
        program(train, TRAIN)
        program(folder / "venv" / "bin" / "python3", PYTHON.replace("PARAMETERS", "5"))
        program(folder / "benchmarks" / "torch_peer", TORCH_PEER)
        program(folder / "mpirun", MPIRUN)

        def compare(*options):
            pathlib.Path(f"{train}.runs").unlink(missing_ok=True)
            json_file = folder / "result.json"
            json_file.unlink(missing_ok=True)
            command = [sys.executable, SCRIPT, "--build", folder, "--venv", folder / "venv", "--mpirun", folder / "mpirun", "--json", json_file]
            done = subprocess.run([str(word) for word in [*command, *options]], capture_output=True, text=True)
            return done, json.loads(json_file.read_text())["summary"] if json_file.exists() else []

        done, rows = compare("--pytorch", "--pairs", "3", "--only", "lenet-mnist", "--only", "resnet18-cifar, 2 ranks")
        check("status", done.returncode, 0)
        check("rows", [row["workload"] for row in rows], ["lenet-mnist", "resnet18-cifar, 2 ranks"])
        one, ranks = rows if len(rows) == 2 else ({}, {})
        check("best", one.get("best_of_torch"), "channels_last bf16")
        check("ratios", one.get("speed_ratio"), {"float32": {"median": 2, "min": 2, "max": 2}, "bf16": {"median": 4, "min": 3, "max": 5}})
        check("memory", one.get("memory_ratio"), {"float32": 1.2, "bf16": 0.8})
        check("memory against", one.get("memory_ratio_against"), "eager float32, system allocator")
        check("saved bytes", one.get("saved_bytes_ratio"), 30 / 60)
        check("left out", one.get("left_out"), {f"compile {p}": "torch_newest.py: no compiler" for p in ("float32", "bf16")})
        check("left out, printed", done.stdout.count("left out: PyTorch's compile"), 2)
        check("threads", [row.get("threads") for row in (one, ranks)], [2, 1])
        check("ranks", [row.get("ranks") for row in (one, ranks)], [1, 2])
        check("best of ranks", ranks.get("best_of_torch"), "channels_last bf16+hook")
        check("configurations of ranks", list(ranks.get("torch_samples_per_s", [])),
              [f"{mode} {p}" for mode in ("eager", "channels_last") for p in ("float32", "bf16", "bf16+hook")])

        done, rows = compare("--pytorch", "--pairs", "1", "--only", "transformer-text", "--precision", "bf16")
        check("one precision", [list(row["speed_ratio"]) + [row["saved_bytes_ratio"]] for row in rows], [["bf16", None]])

        program(folder / "venv" / "bin" / "python3", PYTHON.replace("PARAMETERS", "6"))
        done, rows = compare("--pytorch", "--pairs", "1", "--only", "cosmoflow")
        check("other parameters", (done.returncode, "parameters = 6, not 5" in done.stderr), (1, True))

        done, rows = compare("--pytorch", "--venv", folder / "mpirun" / "venv")  # under a file, where no folder can be made
        check("without PyTorch", (done.returncode, done.stdout.startswith("skipped: no PyTorch: "), done.stdout.count("\n")), (0, True, 1))

        done, rows = compare("--pairs", "2", "--only", "lenet")
        check("libtorch", [[row[key] for key in ("workload", "better_layout", "speed_ratio_median", "memory_ratio")] for row in rows],
              [["lenet-mnist", "default", 2, 0.5]])
        check("a precision without PyTorch", compare("--precision", "bf16")[0].returncode, 2)
    print("compare_peers: " + ("all right" if not failures else "\n".join(["FAILED", *failures])))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
