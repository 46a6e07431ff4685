"""Whether a build is slower than another: the sequential test of one metric. Pure functions of measured values.

A block has one launch of each arm: reference A, a second copy A2 of the same build, candidate B. Values are costs: seconds, or 1 / rate.

    d_i = ln(B_i / A_i)                            of block i; blocks whose launches lie side by side share what disturbs the machine
    looks after 6, 10, 16, 24 blocks; at each the t interval of the mean of d, of confidence 1 − 0.01/4 (Bonferroni: 1 % over all looks)
    slower         lower end > 0 and mean ≥ δ      δ: difference that matters, as a logarithm
    faster         upper end < 0 and mean ≤ −δ
    ok             the whole interval inside (−δ, δ)
    inconclusive   none of them after the last look
    disturbed      A2 beside A, by the same test, is slower or faster: the machine, or the test, tells equal programs apart

`slower` and `faster` are said where a second, fresh series says the same; where it does not, the metric is inconclusive. Simulated rates of errors:
tests/benchmarks/verdict_check.py.
"""

import dataclasses
import math
import statistics

import intervals

LOOKS = (6, 10, 16, 24)
CONFIDENCE = 1 - 0.01 / len(LOOKS)
LEAST_RUNS = 5  # stored ones, for a prediction interval

# From the best to the worst, with the exit status of a suite whose worst it is. 1 is a crash, 2 an error of usage.
EXIT_STATUS = {"ok": 0, "faster": 10, "inconclusive": 11, "disturbed": 12, "no-reference": 13, "not-run": 14, "too-fast": 16, "slower": 15}


def worst(verdicts):
    """Of a suite; "not-run" where there are none: nothing measured is an error."""
    order = list(EXIT_STATUS)
    return max(verdicts, key=order.index, default="not-run")


@dataclasses.dataclass(frozen=True)
class Interval:
    """Of the mean of logarithms of ratios."""

    mean: float
    half: float

    def said(self, delta):
        """slower, faster, ok, or None."""
        if self.mean - self.half > 0 and self.mean >= delta:
            return "slower"
        if self.mean + self.half < 0 and self.mean <= -delta:
            return "faster"
        return "ok" if abs(self.mean) + self.half < delta else None

    def ratios(self):
        """Mean, lower and upper end as ratios of costs."""
        return [math.exp(self.mean + side * self.half) for side in (0, -1, 1)]


@dataclasses.dataclass(frozen=True)
class Series:
    """What the test says of one series of blocks."""

    said: str | None  # None: before the next look there is nothing to say
    blocks: int  # that were looked at, or that the next look needs
    candidate: Interval | None = None  # B beside A
    control: Interval | None = None  # A2 beside A


def differences(blocks, arm):
    """ln(arm / A) of blocks (A, A2, B); arm: 1 or 2."""
    return [math.log(block[arm] / block[0]) for block in blocks]


# --8<-- [start:series]
def judge_series(blocks, delta):
    """blocks: (A, A2, B) of costs > 0, in the order of their launches."""
    candidate = control = None
    control_passed = False
    for looked in LOOKS:
        if len(blocks) < looked:
            return Series(None, looked, candidate, control)
        candidate = Interval(*intervals.mean_and_half(differences(blocks[:looked], 2), CONFIDENCE))
        control = Interval(*intervals.mean_and_half(differences(blocks[:looked], 1), CONFIDENCE))
        same = control.said(delta)
        if same in ("slower", "faster") and not control_passed:
            return Series("disturbed", looked, candidate, control)
        control_passed |= same == "ok"  # its test has ended
        if said := candidate.said(delta):
            return Series(said, looked, candidate, control)
    return Series("inconclusive", LOOKS[-1], candidate, control)


# --8<-- [end:series]

@dataclasses.dataclass(frozen=True)
class Verdict:
    """Of one metric. `verdict` None: series `wanted[0]` has to grow to wanted[1] blocks first."""

    verdict: str | None
    series: list  # of Series
    wanted: tuple | None = None
    why: str = ""


def judge(series, delta):
    """series: lists of blocks, the first and, where it found a difference, a fresh one (none yet: []). delta: logarithm of a ratio, > 0."""
    first = judge_series(series[0] if series else [], delta)
    if first.said is None:
        return Verdict(None, [first], (0, first.blocks))
    if first.said not in ("slower", "faster"):
        return Verdict(first.said, [first])
    fresh = judge_series(series[1] if len(series) > 1 else [], delta)
    if fresh.said is None:
        return Verdict(None, [first, fresh], (1, fresh.blocks))
    if fresh.said in (first.said, "disturbed"):
        return Verdict(fresh.said, [first, fresh])
    return Verdict("inconclusive", [first, fresh], why=f"the first series said {first.said}, a fresh one {fresh.said}")


def judge_stored(cost, earlier, delta):
    """A run's cost (median of its launches) beside those of earlier runs on the same machine, without their build: the interval in which a further
    run of the same would lie, of confidence 99 %. Returns verdict and Interval, or ("no-reference", None)."""
    if len(earlier) < LEAST_RUNS:
        return "no-reference", None
    logs = [math.log(value) for value in earlier]
    found = Interval(math.log(cost) - statistics.fmean(logs), intervals.prediction_half(logs))
    return found.said(delta) or "inconclusive", found


def delta_of(tolerance, floor=0.0):
    """δ from a metric's tolerance (0.03: 3 %) and the floor that `calibrate` measured on this machine, a logarithm."""
    return max(math.log1p(tolerance), floor)
