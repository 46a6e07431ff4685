"""Means over seeds with 95 % intervals (Student's t), for the scripts beside it."""

import math
import random

T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


def mean_and_half(values):
    """Mean and half the interval; NaN for what too few values do not give."""
    n = len(values)
    mean = sum(values) / n if n else math.nan
    if n < 2:
        return mean, math.nan
    return mean, T95.get(n, 1.96) * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def geometric(values):
    """Geometric mean of positive values and the ends of its interval; NaN ends for one value."""
    mean, half = mean_and_half([math.log(v) for v in values])
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def bootstrap(groups, figure, draws=1000):
    """The 2.5 and 97.5 % quantiles of figure(groups) where each group's values are drawn anew from it, with replacement (Efron 1979); the same draws
    each time."""
    chance = random.Random(1)
    found = sorted(figure([chance.choices(values, k=len(values)) for values in groups]) for _ in range(draws))
    return found[round(0.025 * (draws - 1))], found[round(0.975 * (draws - 1))]
