#!/usr/bin/env python3
"""Checks Kendall's τ of benchmarks/links/compare_simulation and what benchmarks/calibrate makes of kernels, against cases
done by hand; and places that benchmarks/links/cluster refuses."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys

sys.dont_write_bytecode = True
root = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(root / "benchmarks"))
failures = []


def load(path):
    loader = importlib.machinery.SourceFileLoader(path.name, str(path))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(path.name, loader))
    loader.exec_module(module)
    return module


def check(what, holds):
    if not holds:
        failures.append(what)


def record(workload, measured, simulated):
    return {"workload": workload, "all_s": measured, "measured_s": sum(measured) / len(measured), "simulated_s": simulated}


def check_order(links):
    clear = [record("a", [1, 1.1], 3), record("a", [2, 2.1], 2), record("a", [3, 3.1], 4)]
    check("one of three pairs is the other way", abs(links.kendall_tau(clear) - 1 / 3) < 1e-12)
    check("pairs that overlap are left out", links.kendall_tau([record("a", [1, 2], 2), record("a", [1.5, 3], 1), record("a", [4, 5], 7)]) == 1)
    check("workloads are not compared", links.kendall_tau([record("a", [1, 1], 2), record("b", [2, 2], 1)]) is None)


def kernel(kind, shape, flops, bytes, seconds):
    return {"kind": kind, "format": "float", "shape": shape, "flops": flops, "bytes": bytes, "calls": 4, "seconds": seconds}


def check_fit(calibrate):
    true = (2e-6, 5e10, 8e9)
    grid = [{"flops": f, "bytes": b} for f in (1e4, 1e6, 1e8) for b in (1e3, 1e5, 1e7)]
    kernels = [k | {"seconds": calibrate.seconds(true, k)} for k in grid]
    check("what a formula made is fitted within 2 %", calibrate.error(calibrate.fit(kernels), kernels) < 0.02)
    check("a fit repeats", calibrate.fit(kernels) == calibrate.fit(kernels))
    # One shape tells nothing of a start: what all kernels have stays near.
    one = calibrate.fit([{"flops": 1e8, "bytes": 1e6, "seconds": 1e-2}], true)
    check("one shape does not make a start of 10 ms", one[0] < 1e-4)

    w = calibrate.Workload("lenet-mnist:32", True)
    w.kernels = [[kernel("a", [8], 1e6, 1e6, s), kernel("b", [8, 2], 1e6, 1e6, 2e-4)] for s in (1e-4, 3e-4, 9e-4)]
    w.step_seconds = [1.1e-3, 1.3e-3, 1.2e-3]
    check("medians over rounds", [k["seconds"] for k in w.median_kernels()] == [3e-4, 2e-4])
    lines, gap = calibrate.kernel_tables([w], 2)
    # 1.2 ms less 2 calls a step of both kernels, 1 ms, over four calls.
    check("a gap is what no kernel has", abs(gap - 5e-5) < 1e-9)
    check("points are shape, operations, bytes, seconds", any("[8, 2, 1000000.0, 1000000.0, 0.0002]" in line for line in lines))


def check_cluster():
    """A place that hosts do not see is named before anything is made."""
    done = subprocess.run([root / "benchmarks/links/cluster", "2", "1gbit", "--", "true", "--out", "/dev/shm/x/run"], capture_output=True, text=True)
    check("a place below /dev/shm is refused", done.returncode == 2 and "/dev/shm/x/run: each host has a /dev/shm of its own" in done.stderr)


def main():
    check_cluster()
    check_order(load(root / "benchmarks" / "links" / "compare_simulation"))
    check_fit(load(root / "benchmarks" / "calibrate"))
    for failure in failures:
        print(f"failed: {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
