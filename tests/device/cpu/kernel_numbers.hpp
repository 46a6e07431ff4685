#pragma once
// Numbers for kernel tests, how far two arrays of them are apart, and what a test sets for as long as it runs.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/device/autotune.hpp>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

namespace kernel_tests {

/// n standard normal numbers of type T times scale plus offset; another stream, other numbers.
template <class T>
std::vector<T> draw(cairn::index_t n, std::uint32_t stream, double scale = 1, double offset = 0) {
    const cairn::random_stream random{99, stream, 0};
    std::vector<T> all(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(offset + scale * random.normal(i));
    return all;
}

/// n numbers of type T from [-1, 1); another stream, other numbers.
template <class T>
std::vector<T> draw_uniform(cairn::index_t n, std::uint32_t stream) {
    const cairn::random_stream random{17, stream, 0};
    std::vector<T> all(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<T>(2 * random.uniform(i) - 1);
    return all;
}

template <class T>
std::vector<double> doubles(const std::vector<T>& v) {
    return {v.begin(), v.end()};
}

/// max |a - b| / max(1, |b|); infinite if a length or a NaN differs.
template <class A, class B>
double distance(const A& a, const B& b) {
    if (std::size(a) != std::size(b)) return INFINITY;
    double worst = 0;
    auto other = std::begin(b);
    for (const auto& value : a) {
        const auto u = static_cast<long double>(value), v = static_cast<long double>(*other++);
        if (std::isnan(u) != std::isnan(v)) return INFINITY;
        if (u == v || std::isnan(u)) continue;
        worst = std::max(worst, static_cast<double>(std::abs(u - v) / std::max(1.0L, std::abs(v))));
    }
    return worst;
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

/// Relative rounding error of T times a factor.
template <class T>
constexpr double eps(double factor = 1) {
    return factor * (sizeof(T) == 4 ? 0x1p-24 : 0x1p-53);
}

/// Makes one candidate the choice of a family of kernels for as long as it lives.
struct forced {
    forced(const char* family, const char* candidate) : kernel(family) {
        cairn::autotune_cache::global().force(family, candidate);
    }
    ~forced() { cairn::autotune_cache::global().force(kernel, ""); }
    forced(const forced&) = delete;
    const char* kernel;
};

using cairn::threads_for_now;

/// Calls f with 1, 2, 3 and 5 threads and sets the number back.
template <class F>
void on_several_threads(F&& f) {
    const int before = cairn::threads();
    for (const int n : {1, 2, 3, 5}) {
        cairn::set_threads(n);
        f(n);
    }
    cairn::set_threads(before);
}

}  // namespace kernel_tests
