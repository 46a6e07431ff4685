"""Means with intervals (Student's t, bootstrap), medians of pairs (Hodges-Lehmann) and the one-sided two-sample t test, for the scripts beside it."""

import functools
import math
import random
import statistics


def incomplete_beta(x, a, b):
    """I_x(a, b), regularized, 0 ≤ x ≤ 1; relative error below 1e-12. Continued fraction DLMF 8.17.22 by Lentz's method (Numerical Recipes, 6.4)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction converges slowly
        return 1 - incomplete_beta(1 - x, b, a)
    tiny = 1e-300
    c, d = 1.0, 1 / max(1 - (a + b) * x / (a + 1), tiny)
    fraction = d
    for m in range(1, 10_000):
        for term in (m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)), -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-14:
            break
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    return front * fraction / a


def t_probability(t, freedom):
    """P(T ≤ t) of Student's t with so many degrees of freedom, > 0."""
    tail = incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - tail if t > 0 else tail


@functools.lru_cache(maxsize=None)
def t_quantile(level, freedom):
    """t with P(T ≤ t) = level, 0 < level < 1, by bisection."""
    if level < 0.5:
        return -t_quantile(1 - level, freedom)
    low, high = 0.0, 1.0
    while t_probability(high, freedom) < level:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if t_probability(middle, freedom) < level else (low, middle)
    return high


def mean_and_half(values, confidence=0.95):
    """Mean and half its interval; NaN for what too few values do not give."""
    n = len(values)
    mean = sum(values) / n if n else math.nan
    if n < 2:
        return mean, math.nan
    return mean, t_quantile((1 + confidence) / 2, n - 1) * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)


def geometric(values):
    """Geometric mean of positive values and the ends of its interval; NaN ends for one value."""
    mean, half = mean_and_half([math.log(v) for v in values])
    return math.exp(mean), math.exp(mean - half), math.exp(mean + half)


def prediction_half(values, confidence=0.99):
    """Half the interval around the mean of at least two values in which one further value lies: t s √(1 + 1/n)."""
    return t_quantile((1 + confidence) / 2, len(values) - 1) * statistics.stdev(values) * math.sqrt(1 + 1 / len(values))


def pooled_deviation(a, b):
    """The standard deviation that two samples of at least three values together have in common."""
    squares = sum((v - statistics.fmean(sample)) ** 2 for sample in (a, b) for v in sample)
    return math.sqrt(squares / (len(a) + len(b) - 2))


def probability_of_smaller(a, b):
    """One-sided two-sample t test (Student 1908, pooled deviation): the probability of a mean of `a` as small as this, or smaller, where `a` and `b` are of
    one distribution. At least three values together, one in each."""
    difference = statistics.fmean(a) - statistics.fmean(b)
    error = pooled_deviation(a, b) * math.sqrt(1 / len(a) + 1 / len(b))
    if error == 0:
        return 0.5 if difference == 0 else float(difference > 0)
    return t_probability(difference / error, len(a) + len(b) - 2)


@functools.lru_cache(maxsize=None)
def signed_rank_place(n, confidence):
    """C such that the interval of n pairs goes from the C-th smallest to the C-th largest mean of two; 0 where there is none. Exact distribution of
    Wilcoxon's signed-rank sum (Hollander & Wolfe, Nonparametric Statistical Methods, 3.3)."""
    ways = [1]  # of each sum of ranks
    for rank in range(1, n + 1):
        longer = ways + [0] * rank
        for total, count in enumerate(ways):
            longer[total + rank] += count
        ways = longer
    place, below = 0, 0
    while below + ways[place] <= (1 - confidence) / 2 * 2**n:
        below += ways[place]
        place += 1
    return place


def hodges_lehmann(values, confidence=0.95):
    """The median of all means of two of the values (each with itself, too), and the ends of its signed-rank interval: NaN below 6 values at 95 %, 8 at 99 %."""
    means = sorted((values[i] + values[j]) / 2 for i in range(len(values)) for j in range(i, len(values)))
    place = signed_rank_place(len(values), confidence)
    return statistics.median(means), *((means[place - 1], means[-place]) if place else (math.nan, math.nan))


def bootstrap(groups, figure, draws=1000):
    """The 2.5 and 97.5 % quantiles of figure(groups) where each group's values are drawn anew from it, with replacement (Efron 1979); the same draws
    each time."""
    chance = random.Random(1)
    found = sorted(figure([chance.choices(values, k=len(values)) for values in groups]) for _ in range(draws))
    return found[round(0.025 * (draws - 1))], found[round(0.975 * (draws - 1))]
