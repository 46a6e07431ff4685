"""Means over seeds with 95 % intervals (Student's t), for the scripts beside it."""

import math

T95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36, 9: 2.31, 10: 2.26}


def mean_and_half(values):
    """Mean and half the interval; NaN for what too few values do not give."""
    n = len(values)
    mean = sum(values) / n if n else math.nan
    if n < 2:
        return mean, math.nan
    return mean, T95.get(n, 1.96) * math.sqrt(sum((v - mean) ** 2 for v in values) / (n - 1) / n)
