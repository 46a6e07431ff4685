#pragma once
// What the tests compare with: the definition by plain loops in long double, and what rounding may add.

#include "judge.hpp"

namespace lab {

struct expected {
    long double mean = 0, variance = 0, magnitude = 0;  // magnitude: the mean of |x|

    explicit expected(const std::vector<float>& x) {
        const auto n = static_cast<long double>(x.empty() ? 1 : x.size());
        for (const float v : x) mean += v / n, magnitude += std::abs(v) / n;
        for (const float v : x) variance += (v - mean) * (v - mean) / n;
    }
};

/// Sums of n numbers in double may be off by this much of their magnitude.
inline double relative_bound(std::size_t n) { return rounding_bound<double>(n + 4, 1); }

}  // namespace lab
