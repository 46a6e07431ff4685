#pragma once
// For the tests of labs: inputs from the grader's seed, and comparisons that say what is wrong.

#define CATCH_CONFIG_ENABLE_ALL_STRINGMAKERS  // pairs and tuples are printed, not {?}
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
#else
#include <catch2/catch.hpp>
#endif

#include <cairn/core/random.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace lab {

/// The seed of this test's inputs: CAIRN_LAB_SEED, or 1.
std::uint64_t seed();

/// What is tried from now on, for example "3 ranks, 1 element": said if the submission crashes or hangs with it.
void doing(const std::string& what);

/// n numbers in (-1, 1), others for every `stream`.
template <class T = float>
std::vector<T> numbers(std::size_t n, std::uint32_t stream) {
    const cairn::random_stream random{seed(), stream, 0};
    std::vector<T> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<T>(2 * random.uniform(i) - 1);
    return all;
}

/// A whole number in [low, high], drawn from the seed.
inline int number(int low, int high, std::uint32_t stream) {
    const cairn::random_stream random{seed(), stream, 1};
    return low + static_cast<int>(random.below(static_cast<std::uint64_t>(high - low + 1), 0));
}

/// With as many digits as tell two numbers apart.
inline std::string text(double x) {
    char room[32];
    std::snprintf(room, sizeof room, "%.9g", x);
    return room;
}
/// "1 rank", "3 ranks".
inline std::string text(auto n, const std::string& what) {
    return std::to_string(n) + ' ' + what + (n == 1 ? "" : "s");
}

/// Empty if |got[i] − expected[i]| ≤ bound[i] everywhere, else which element is wrong and how: first size, then NaN and
/// infinity, then distance.
template <class T, class U>
std::string difference(std::span<const T> got, const std::vector<U>& expected, const std::vector<double>& bound) {
    if (got.size() != expected.size())
        return "there are " + std::to_string(got.size()) + " elements, expected " + std::to_string(expected.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double g = static_cast<double>(got[i]), e = static_cast<double>(expected[i]);
        if (!std::isfinite(g)) return "element " + std::to_string(i) + " is " + text(g) + ", expected " + text(e);
        if (!(std::abs(g - e) <= bound[i]))
            return "element " + std::to_string(i) + " is " + text(g) + ", expected " + text(e) + " within " +
                   text(bound[i]);
    }
    return {};
}

/// What n additions of numbers whose magnitudes add up to `magnitude` may be off by in T.
template <class T>
double rounding_bound(std::size_t n, double magnitude) {
    return 2 * static_cast<double>(n) * static_cast<double>(std::numeric_limits<T>::epsilon()) * magnitude;
}

}  // namespace lab
