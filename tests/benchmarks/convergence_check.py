#!/usr/bin/env python3
"""Checks benchmarks/regression/convergence.py: closed forms, simulated rates, bad input."""

import math
import random
import sys

sys.dont_write_bytecode = True
from checks import check, end  # noqa: E402
from regression import convergence  # noqa: E402


def check_speedups():
    # α = 5 %, ten references and 1, 3, 5 runs, by the coefficient of variation.
    for deviation, row in ((0.03, (1.061, 1.037, 1.030)), (0.05, (1.106, 1.063, 1.051)), (0.10, (1.238, 1.134, 1.107)), (0.20, (1.63, 1.31, 1.24))):
        for runs, expected in zip((1, 3, 5), row):
            found = convergence.honest_speedup(deviation, 10, runs, 0.05)
            check(abs(found - expected) < 0.006, f"{deviation}, {runs} runs: {found:.4f}, expected {expected}")
    check(convergence.honest_speedup(2.0, 5, 1) == math.inf, "runs that scatter much are believed")


def rate(deviation, runs, speedup, verdict, draws=600):
    """How often runs that are so much faster get a verdict."""
    chance = random.Random(f"{deviation} {runs} {speedup}")
    drawn = lambda n, mean: [chance.gauss(mean, deviation * mean) for _ in range(n)]
    return sum(convergence.judge(drawn(10, 100), drawn(runs, 100 / speedup)).verdict == verdict for _ in range(draws)) / draws


def check_rates():
    for deviation, row in ((0.05, (0.23, 0.65, 0.86)), (0.03, (0.65, 0.99, 1.0))):
        for runs, expected in zip((1, 3, 5), row):
            found = rate(deviation, runs, 1 / 0.9, "too-fast", 1500)
            check(abs(found - expected) < 0.06, f"10 % too few steps, {deviation}, {runs} runs: refused in {found:.2f}, expected {expected}")
    for runs in (1, 3, 5):
        found = rate(0.05, runs, 1.0, "ok", 2000)
        check(0.97 < found < 0.99, f"{runs} honest runs are ok in {found:.3f}, expected 0.98: 1 % on each side")
    check(rate(0.05, 5, 0.1, "slower", 50) == 1, "ten times slower is found")


def check_cases():
    reference = [100, 103, 98, 101, 99, 102, 97, 100, 104, 96]
    judge = convergence.judge
    check(judge(reference, [100, 99, 102]).verdict == "ok", "the same is ok")
    check(judge(reference, [60, 61, 59]).verdict == "too-fast" and "too fast to be true" in judge(reference, [60, 61, 59]).why, "a run that trains on the test set")
    check(judge(reference, [math.inf]).verdict == "slower" and "1 of 1 seeds" in judge(reference, [math.inf]).why, "a seed that does not arrive")
    check(judge(reference, reference[:9] + [math.inf]).verdict == "ok", "one in ten may not arrive")
    check(judge(reference, [math.inf] * 2 + reference).verdict == "slower", "more than one in ten is slower")
    check(judge(reference, [60] * 10 + [math.inf]).verdict != "too-fast", "an infinite mean is not too fast")
    check(judge(reference[:4], [100]).verdict == "no-reference" and judge(reference[:8] + [math.inf] * 2, [100]).verdict == "no-reference", "too few seeds are no reference")
    for runs in ([], [0], [-1], [math.nan]):
        try:
            judge(reference, runs)
            check(False, f"{runs} is refused")
        except ValueError:
            pass


if __name__ == "__main__":
    check_speedups()
    check_rates()
    check_cases()
    end("convergence")
