#!/usr/bin/env python3
"""Runs the program train as a user would: a few steps of the quickstart's workload, stopped and resumed, and bad input.

    tests/checks/program.py build/dev

Checks exit status, that every file of the run directory is valid, and that a resumed run ends in the very same numbers.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

root = pathlib.Path(__file__).resolve().parents[2]
failures = []


def check(condition, what, context=""):
    if not condition:
        failures.append(what)
        print(f"FAILED: {what}\n{context[-2000:]}")


def main():
    train = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "build/dev").resolve() / "benchmarks" / "train"
    if not train.exists():
        sys.exit(f"{train} does not exist; build it first")
    workload = root / "benchmarks" / "workloads" / "cosmology-quickstart.toml"

    with tempfile.TemporaryDirectory() as folder:

        def run(*arguments):
            result = subprocess.run([str(train), *map(str, arguments)], capture_output=True, text=True, cwd=folder,
                                    stdin=subprocess.DEVNULL, timeout=600)
            return result.returncode, result.stdout + result.stderr, result.stdout.strip().split("\n")[-1]

        def finished(*arguments):
            code, text, last = run(*arguments)
            check(code == 0, f"train {' '.join(map(str, arguments))} exits with {code}", text)
            try:
                return json.loads(last)
            except ValueError:
                check(False, "the last line of the output is a JSON object", text)
                return {}

        whole, parts = pathlib.Path(folder) / "whole", pathlib.Path(folder) / "parts"
        result = finished(workload, "--steps", 6, "--out", whole)
        for key in ("samples_per_s", "peak_bytes"):
            check(result.get(key, 0) > 0, f"{key} is in the last line")
        for name in ("config.toml", "metrics.jsonl", "record.json", "trace.json", "report.html"):
            check((whole / name).exists(), f"{name} is written")
        try:
            json.loads((whole / "record.json").read_text())
            check(json.loads((whole / "trace.json").read_text())["traceEvents"], "the trace has events")
            for line in (whole / "metrics.jsonl").read_text().splitlines():
                json.loads(line)
        except (OSError, ValueError, KeyError) as problem:
            check(False, f"the files of the run are valid JSON: {problem}")

        finished(workload, "--steps", 2, "--out", parts)
        resumed = finished("--resume", parts, "--steps", 6)
        timing = {"seconds", "samples_per_s", "peak_bytes", "stall_fraction"}
        same = {key: (result.get(key), resumed.get(key)) for key in set(result) | set(resumed) if key not in timing}
        check(all(a == b for a, b in same.values()), "a resumed run ends like an unbroken one", str(same))

        code, text, _ = run(workload, "--set", "optimizer.weight_decey=0", "--steps", 1, "--out", f"{folder}/x")
        check(code != 0 and "weight_decay" in text, "a misspelt key is refused and the nearest one named", text)
        code, text, _ = run("nothing.toml")
        check(code != 0 and "nothing.toml" in text, "a workload that does not exist is named", text)
        code, text, _ = run(workload, "--threads", 0, "--out", f"{folder}/y")
        check(code != 0 and "thread" in text, "zero threads are refused", text)
        code, text, _ = run(workload, "--steps", 1, "--out", "/proc/nowhere")
        check(code != 0 and "/proc/nowhere" in text, "a folder that cannot be written is named", text)

    print("train: all right" if not failures else f"train: {len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
