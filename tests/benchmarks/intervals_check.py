#!/usr/bin/env python3
"""Checks benchmarks/intervals.py against published tables and examples."""

import math
import sys

sys.dont_write_bytecode = True
from checks import check, end  # noqa: E402
import intervals  # noqa: E402


def check_student():
    # NIST/SEMATECH e-Handbook of Statistical Methods, 1.3.6.7.2
    table = {0.90: {1: 3.078, 2: 1.886, 5: 1.476, 10: 1.372, 30: 1.310, 100: 1.290}, 0.975: {1: 12.706, 2: 4.303, 3: 3.182, 9: 2.262, 10: 2.228, 11: 2.201, 30: 2.042, 60: 2.000, 100: 1.984},
             0.995: {1: 63.657, 4: 4.604, 5: 4.032, 10: 3.169, 24: 2.797, 100: 2.626}, 0.999: {1: 318.309, 3: 10.215, 20: 3.552, 100: 3.174}}  # fmt: skip
    for level, row in table.items():
        for freedom, t in row.items():
            found = intervals.t_quantile(level, freedom)
            check(abs(found - t) < 6e-4 + 2e-5 * t, f"t({level}, {freedom}) = {found}, expected {t}")
            check(math.isclose(intervals.t_quantile(1 - level, freedom), -found), "quantiles are symmetric")
            check(math.isclose(intervals.t_probability(found, freedom), level, rel_tol=1e-9), "and those of the probability")
    check(abs(intervals.t_quantile(0.975, 1e7) - 1.959964) < 1e-5, "with many degrees of freedom it is the normal distribution's")
    check(math.isclose(intervals.t_probability(1, 1), 0.75) and math.isclose(intervals.t_probability(math.sqrt(2), 2), 0.5 + math.sqrt(2) / 4), "closed forms of one and two degrees")
    mean, half = intervals.mean_and_half(list(range(11)))
    check(mean == 5 and math.isclose(half, 2.22814 * math.sqrt(11 / 11), rel_tol=1e-5), f"eleven values, of variance 11: {half}")
    check(math.isclose(intervals.mean_and_half([1, 2, 3], 0.99)[1], 9.92484 / math.sqrt(3), rel_tol=1e-5), "of another confidence")
    mean, half = intervals.mean_and_half([7])
    check(mean == 7 and math.isnan(half) and all(map(math.isnan, intervals.mean_and_half([]))), "too few values give NaN")
    check(math.isclose(intervals.prediction_half([1, 2, 3]), 9.92484 * math.sqrt(4 / 3), rel_tol=1e-5), "a further value lies in t s √(1 + 1/n)")


def check_signed_rank():
    # Critical values of Wilcoxon's signed-rank sum, both sides together (exact; Hollander & Wolfe, table A.4).
    # The interval begins one place later.
    tables = {0.95: {5: -1, 6: 0, 7: 2, 8: 3, 9: 5, 10: 8, 11: 10, 12: 13, 13: 17, 14: 21, 15: 25, 16: 29, 17: 34, 18: 40, 19: 46, 20: 52},
              0.99: {7: -1, 8: 0, 9: 1, 10: 3, 11: 5, 12: 7, 13: 9, 14: 12, 15: 15, 16: 19, 17: 23, 18: 27, 19: 32, 20: 37}}  # fmt: skip
    for confidence, table in tables.items():
        for n, critical in table.items():
            check(intervals.signed_rank_place(n, confidence) == critical + 1, f"{n} values, {confidence}: {intervals.signed_rank_place(n, confidence)}")
    # Hollander & Wolfe, examples 3.1 to 3.4: depression before and after a tranquilizer.
    before = [1.83, 0.50, 1.62, 2.48, 1.68, 1.88, 1.55, 3.06, 1.30]
    after = [0.878, 0.647, 0.598, 2.05, 1.06, 1.29, 1.06, 3.14, 1.29]
    found = intervals.hodges_lehmann([y - x for x, y in zip(before, after)])
    check(all(abs(a - b) < 6e-4 for a, b in zip(found, (-0.46, -0.786, -0.010))), f"Hodges-Lehmann: {found}")
    for n, confidence, there in ((5, 0.95, False), (6, 0.95, True), (7, 0.99, False), (8, 0.99, True)):
        check(math.isfinite(intervals.hodges_lehmann(list(range(n)), confidence)[1]) == there, f"an interval of {n} at {confidence}: {there}")
    check(intervals.hodges_lehmann([3, 1, 2])[0] == 2, "the median of the means, where there is no interval, too")


def check_two_samples():
    # Student's sleep data; R: t.test(extra ~ group, var.equal = TRUE): t = -1.8608, df = 18, p = 0.07919 (two-sided).
    one = [0.7, -1.6, -0.2, -1.2, -0.1, 3.4, 3.7, 0.8, 0.0, 2.0]
    two = [1.9, 0.8, 1.1, 0.1, -0.1, 4.4, 5.5, 1.6, 4.6, 3.4]
    check(abs(intervals.probability_of_smaller(one, two) - 0.07919 / 2) < 5e-6, f"{intervals.probability_of_smaller(one, two)}")
    check(math.isclose(intervals.probability_of_smaller(two, one), 1 - intervals.probability_of_smaller(one, two)), "the other side")
    check(abs(intervals.pooled_deviation(one, two) - 1.8983) < 5e-4, f"the pooled deviation: {intervals.pooled_deviation(one, two)}")
    check(intervals.probability_of_smaller([1, 1], [2, 2]) == 0 and intervals.probability_of_smaller([2, 2], [1]) == 1 and intervals.probability_of_smaller([1], [1, 1]) == 0.5, "without variance")


if __name__ == "__main__":
    check_student()
    check_signed_rank()
    check_two_samples()
    end("intervals")
