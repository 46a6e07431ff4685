#pragma once
// Minimisers by brute force, in double: what the closed forms and the steps of ADMM are compared with.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

namespace oracle {

/// The smallest value of f on [from, to]: the best of a grid, then thirds around it.
inline double least_value(const std::function<double(double)>& f, double from, double to, int points = 4001) {
    double best = from;
    const double step = (to - from) / (points - 1);
    for (int i = 0; i < points; ++i)
        if (f(from + i * step) < f(best)) best = from + i * step;
    double low = best - step, high = best + step;
    for (int i = 0; i < 120; ++i) {
        const double a = low + (high - low) / 3, b = high - (high - low) / 3;
        (f(a) < f(b) ? high : low) = f(a) < f(b) ? b : a;
    }
    return std::min(f(best), f((low + high) / 2));
}

/// The minimum of a smooth convex f of several numbers, by coordinate descent with least_value's thirds; slow and sure.
inline std::vector<double> minimiser(const std::function<double(const std::vector<double>&)>& f, std::vector<double> x,
                                     double reach = 4, int sweeps = 200) {
    for (int s = 0; s < sweeps; ++s) {
        double moved = 0;
        for (double& v : x) {
            const double before = v;
            double low = v - reach, high = v + reach;
            for (int i = 0; i < 100; ++i) {
                const double a = low + (high - low) / 3, b = high - (high - low) / 3;
                v = a;
                const double at_a = f(x);
                v = b;
                (at_a < f(x) ? high : low) = at_a < f(x) ? b : a;
            }
            v = (low + high) / 2;
            moved = std::max(moved, std::abs(v - before));
        }
        if (moved < 1e-12) break;
        reach = std::max(2 * moved, 1e-9);
    }
    return x;
}

}  // namespace oracle
