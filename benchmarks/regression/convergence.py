"""Whether runs reach a stated quality as fast as a reference did. Pure functions of steps (samples, seconds) to the quality, one value a seed, infinite where a
seed does not arrive. Batch and settings are those of the reference: values of other batches are never compared.

As the reference convergence points of MLPerf: the least mean of n runs that is believed, of m reference runs with mean µ and pooled deviation s, is

    µ − t(1 − α, m + n − 2) s √(1/m + 1/n)

which is the one-sided two-sample t test. Here α = 1 %; slower runs are found by the same test on the other side.
"""

import dataclasses
import math
import statistics

import intervals

LEVEL = 0.01
LEAST_SEEDS = 5  # of a reference
LOST = 0.1  # part of seeds that may not arrive


@dataclasses.dataclass(frozen=True)
class Convergence:
    verdict: str  # ok, slower, too-fast, no-reference
    why: str
    seen: float | None = None  # least speed-up, as a ratio, that this number of runs can tell from none


def honest_speedup(deviation, references, runs, level=LEVEL):
    """The largest ratio of the reference's mean to that of so many runs that is believed. deviation: of a seed, as a part of the mean. Infinite where so few
    runs are believed whatever they say."""
    half = intervals.t_quantile(1 - level, references + runs - 2) * deviation * math.sqrt(1 / references + 1 / runs)
    return 1 / (1 - half) if half < 1 else math.inf


def judge(reference, runs, level=LEVEL):
    """ValueError where nothing was run, or a value is not positive."""
    if not runs or not all(value > 0 for value in [*reference, *runs]):  # NaN, too
        raise ValueError("convergence: at least one run is needed, and positive steps (infinite of a seed that does not arrive)")
    arrived, here = ([value for value in values if math.isfinite(value)] for values in (reference, runs))
    if len(arrived) < LEAST_SEEDS or len(arrived) < (1 - LOST) * len(reference):
        return Convergence("no-reference", f"{len(arrived)} of {len(reference)} seeds of the reference arrived; {LEAST_SEEDS} at least, and nine in ten, are needed")
    if len(runs) - len(here) > LOST * len(runs):
        return Convergence("slower", f"{len(runs) - len(here)} of {len(runs)} seeds do not arrive")
    mean, deviation = statistics.fmean(arrived), statistics.stdev(arrived)
    seen = honest_speedup(deviation / mean, len(arrived), len(here), level)
    told = f"mean {statistics.fmean(here):.4g} of {len(here)} seeds, {mean:.4g} of {len(arrived)} of the reference; as many can tell a speed-up of {seen:.3f}"
    if len(here) == len(runs) and intervals.probability_of_smaller(here, arrived) < level:
        return Convergence("too-fast", f"too fast to be true: {told}", seen)
    if intervals.probability_of_smaller(arrived, here) < level:
        return Convergence("slower", told, seen)
    return Convergence("ok", told, seen)
