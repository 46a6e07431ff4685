#!/usr/bin/env python3
"""Checks the verdicts of benchmarks/regression/verdict.py on simulated launches: how often each is wrong, by noise and true slowdown.

Three arms A, A2, B in blocks whose order goes through the six permutations. Launches are independent, or an AR(1) process of lag-1 correlation 0.7.
"""

import itertools
import math
import random
import sys

sys.dont_write_bytecode = True
from checks import check, end  # noqa: E402
from regression import verdict  # noqa: E402

SERIES = 4000
DELTA = verdict.delta_of(0.03)
ORDERS = list(itertools.permutations(range(3)))
# Of the logarithm of a launch: (standard deviation, lag-1 correlation). A pair of independent ones has √2 times that.
NOISES = {"1.5 %": (0.015 / math.sqrt(2), 0), "3 %": (0.03 / math.sqrt(2), 0), "6 %": (0.06 / math.sqrt(2), 0), "15 %": (0.15 / math.sqrt(2), 0), "AR 8 %": (0.08, 0.7), "AR 20 %": (0.2, 0.7)}


def blocks(chance, noise, slowdown):
    """All blocks of one series."""
    deviation, correlation = noise
    step = deviation * math.sqrt(1 - correlation**2)
    state = chance.gauss(0, deviation)
    found = []
    for i in range(verdict.LOOKS[-1]):
        block = [0.0, 0.0, 0.0]
        for arm in ORDERS[i % 6]:
            block[arm] = math.exp(state) * (slowdown if arm == 2 else 1)
            state = correlation * state + chance.gauss(0, step)
        found.append(block)
    return found


def simulate(noise, slowdown, series):
    """Counts of what the first series says and of verdicts, and the mean number of blocks of first series."""
    chance = random.Random(f"{noise} {slowdown}")
    first, final, looked = {}, {}, 0
    for _ in range(series):
        made = [blocks(chance, NOISES[noise], slowdown)]
        judged = verdict.judge(made, DELTA)
        if judged.verdict is None:  # wants a fresh series
            made.append(blocks(chance, NOISES[noise], slowdown))
            judged = verdict.judge(made, DELTA)
        first[judged.series[0].said] = first.get(judged.series[0].said, 0) + 1
        final[judged.verdict] = final.get(judged.verdict, 0) + 1
        looked += judged.series[0].blocks
    return first, final, looked / series


def check_rates():
    for noise in NOISES:
        first, final, _ = simulate(noise, 1.0, SERIES)
        before, after = ({said: counts.get(said, 0) for said in ("slower", "faster")} for counts in (first, final))
        check(sum(before.values()) <= 0.015 * SERIES, f"equal builds, {noise}: {before} of {SERIES} before confirmation")
        check(sum(after.values()) <= 4, f"equal builds, {noise}: {after} of {SERIES} after confirmation")
        check(final.get("disturbed", 0) <= 0.015 * SERIES, f"equal builds, {noise}: {final}")
        first, final, _ = simulate(noise, 1.2, SERIES)
        check("ok" not in first and "ok" not in final and "faster" not in final, f"20 % slower, {noise}: {first}, {final}")
    first, final, looked = simulate("3 %", 1.1, SERIES)
    check(final.get("slower", 0) >= 0.99 * SERIES and looked <= 8, f"10 % slower at 3 %: {final}, {looked} blocks")
    first, final, _ = simulate("15 %", 1.1, SERIES)
    check(set(final) <= {"inconclusive", "slower", "disturbed"} and "ok" not in first, f"10 % slower at 15 %: {final}")
    first, final, _ = simulate("3 %", 1 / 1.1, SERIES // 4)
    check(final.get("faster", 0) >= 0.99 * SERIES // 4, f"10 % faster: {final}")
    first, final, looked = simulate("1.5 %", 1.0, SERIES // 4)
    check(final.get("ok", 0) >= 0.99 * SERIES // 4 and looked < 11, f"equal builds on a quiet machine are ok: {final}, {looked} blocks")


def check_steps():
    same, slow = [1.0, 1.0, 1.0], [1.0, 1.0, 1.1]
    check(verdict.judge([], DELTA).wanted == (0, 6), "six blocks first")
    check(verdict.judge([[same] * 6], DELTA).verdict == "ok", "equal costs are ok")
    judged = verdict.judge([[slow] * 6], DELTA)
    check(judged.verdict is None and judged.wanted == (1, 6), f"a difference is confirmed by a fresh series: {judged}")
    check(verdict.judge([[slow] * 6, [slow] * 5], DELTA).wanted == (1, 6), "to its first look")
    check(verdict.judge([[slow] * 6, [slow] * 6], DELTA).verdict == "slower", "and said then")
    judged = verdict.judge([[slow] * 6, [same] * 6], DELTA)
    check(judged.verdict == "inconclusive" and "fresh one ok" in judged.why, f"one that is not confirmed is inconclusive: {judged}")
    noisy = [[1.0, 1.0, 1.0 + 0.3 * (-1) ** i] for i in range(24)]
    for there, wanted in ((0, 6), (5, 6), (6, 10), (9, 10), (10, 16), (16, 24), (23, 24)):
        check(verdict.judge([noisy[:there]], DELTA).wanted == (0, wanted), f"{there} blocks: the next look is at {wanted}")
    check(verdict.judge([noisy], DELTA).verdict == "inconclusive", "after the last look")
    check(verdict.judge([noisy[:7]], DELTA) == verdict.judge([noisy[:9]], DELTA), "blocks between two looks are not looked at")
    check(verdict.judge([[[1.0, 1.1, 1.0]] * 6], DELTA).verdict == "disturbed", "equal programs that are told apart")
    check(verdict.judge([[slow] * 6, [[1.0, 0.9, 1.1]] * 6], DELTA).verdict == "disturbed", "also where a difference is confirmed")
    check(verdict.judge([[[1.0, 1.0, 1.02]] * 6], DELTA).verdict == "ok" and verdict.judge([[slow] * 6], 0.2).verdict == "ok", "differences below the tolerance are ok")
    check(math.isclose(verdict.delta_of(0.03), math.log(1.03)) and verdict.delta_of(0.03, 0.05) == 0.05, "the floor of the machine is the least tolerance")


def check_stored():
    earlier = [1.0, 1.01, 0.99, 1.005, 0.995]  # sd 0.8 %: a further one lies within 4 %
    check(verdict.judge_stored(1.0, earlier[:4], DELTA) == ("no-reference", None), "four runs are no reference")
    check(verdict.judge_stored(1.06, earlier, DELTA)[0] == "slower" and verdict.judge_stored(1 / 1.06, earlier, DELTA)[0] == "faster", "beyond the prediction interval")
    check(verdict.judge_stored(1.03, earlier, DELTA)[0] == "inconclusive" and verdict.judge_stored(1.0, earlier, verdict.delta_of(0.05))[0] == "ok", "and within it")
    # Limits t(0.995, k − 1) σ √(1 + 1/k) of σ = 1 %: 5.2 % of 5 runs, 3.5 % of 10.
    for count, limit in ((5, 0.052), (10, 0.035)):
        logs = [0.01 * math.sqrt((count - 1) / count) * (-1) ** i for i in range(count)]
        logs = logs if count % 2 == 0 else [0.01 * math.sqrt(4 / 4) * v for v in (1, -1, 1, -1, 0)]
        half = verdict.judge_stored(1.0, [math.exp(v) for v in logs], DELTA)[1].half
        check(abs(half - limit) < 0.002, f"{count} runs: the limit is {half:.4f}, expected {limit}")
    check(verdict.worst(["ok", "faster", "inconclusive"]) == "inconclusive" and verdict.worst(["slower", "not-run", "disturbed"]) == "slower", "a suite has its worst verdict")
    check(verdict.worst([]) == "not-run" and len(set(verdict.EXIT_STATUS.values())) == len(verdict.EXIT_STATUS) == 8 and not {1, 2} & set(verdict.EXIT_STATUS.values()), "nothing measured is an error; statuses of their own")


if __name__ == "__main__":
    check_steps()
    check_stored()
    check_rates()
    end("verdicts")
