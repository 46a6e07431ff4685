#pragma once
// What is said of repeated measurements.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <vector>

namespace cairn {

/// The middle value, of an even number the mean of the two; 0 of none.
inline double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return values.size() % 2 ? *middle : (*middle + *std::max_element(values.begin(), middle)) / 2;
}

/// The value below which the share q of sorted values lies, linear between two of them (R's type 7, NumPy's default).
inline double quantile(std::span<const double> sorted, double q) {
    const double at = q * static_cast<double>(sorted.size() - 1);
    const auto below = static_cast<std::size_t>(at), above = std::min(below + 1, sorted.size() - 1);
    return sorted[below] + (at - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// Means of ten consecutive parts of a series of at least ten values, of all values where there are fewer. Their median
/// passes over a single disturbance, as that of the values does, and does not pass over one that comes back in every
/// tenth, which the median of the values does where fewer than half of them are hit.
inline std::vector<double> means_of_tenths(std::span<const double> values) {
    const std::size_t parts = std::min<std::size_t>(10, values.size());
    std::vector<double> means(parts);
    for (std::size_t k = 0; k < parts; ++k) {
        const std::size_t begin = k * values.size() / parts, end = (k + 1) * values.size() / parts;
        const auto part = values.subspan(begin, end - begin);
        means[k] = std::accumulate(part.begin(), part.end(), 0.0) / static_cast<double>(part.size());
    }
    return means;
}

}  // namespace cairn
