#pragma once
// What the tests of this lab share: ranks as threads, arrays drawn from the seed, messages put together and taken
// apart.

#include "counted_ranks.hpp"
#include "lab.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <vector>

namespace lab {

using arrays = std::vector<std::vector<float>>;  // [rank][element]

inline constexpr double epsilon = std::numeric_limits<float>::epsilon();

/// Runs body(communicator, rank) on p ranks. Returns what each of them sent.
template <class Body>
std::vector<cairn::communication_counts> on_ranks(int p, Body&& body) {
    std::vector<cairn::communication_counts> counts(static_cast<std::size_t>(p));
    cairn::run_ranks(p, {.kernel_threads = 1}, [&](cairn::threads_communicator& world) {
        counted c(world.split(0, world.rank()));
        const auto rank = static_cast<std::size_t>(c.rank());
        rank_of_test mine(c);
        body(mine, rank);
        counts[rank] = c.counts();
    });
    return counts;
}

/// n numbers in (−1, 1) on each of p ranks.
inline arrays numbers_on(int p, std::size_t n, std::uint32_t stream) {
    arrays all;
    for (int r = 0; r < p; ++r) all.push_back(numbers(n, stream + static_cast<std::uint32_t>(r)));
    return all;
}

inline std::span<const float> view(const std::vector<float>& v) { return v; }

/// The number at byte `at` of a message; the message is known to be long enough.
template <class T>
T number_at(const std::vector<std::byte>& message, std::size_t at) {
    T value;
    std::memcpy(&value, message.data() + at, sizeof value);
    return value;
}
template <class T>
void append(std::vector<std::byte>& message, T value) {
    message.resize(message.size() + sizeof value);
    std::memcpy(message.data() + message.size() - sizeof value, &value, sizeof value);
}

/// Σ (a − b)², in double; b may be left out. NaN where a value is NaN.
inline double square(std::span<const float> a, std::span<const float> b = {}) {
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - (b.empty() ? 0.0 : static_cast<double>(b[i]));
        sum += d * d;
    }
    return sum;
}

/// Empty, or how two numbers differ by more than `relative` of the second.
inline std::string unlike(double got, double expected, double relative = 1e-12) {
    if (std::isfinite(got) && std::abs(got - expected) <= relative * std::abs(expected)) return {};
    return std::to_string(got) + ", expected " + std::to_string(expected);
}

/// Empty, or the first element in which two arrays are not equal: short, where Catch would print both of them.
inline std::string unlike(const std::vector<float>& got, const std::vector<float>& expected) {
    return difference(view(got), expected, std::vector<double>(expected.size()));
}

}  // namespace lab
