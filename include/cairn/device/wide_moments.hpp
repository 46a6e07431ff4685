#pragma once
// Mean and deviation of numbers whose squares or sums overflow their type (floats from 1e19 on): of numbers divided by
// the power of two of the largest, in double, by one thread. Normalisation turns to it where its own sums are not
// finite. Three passes; none behind the first element that is not finite itself.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>

namespace cairn::detail {

struct wide_moments {
    double mean, deviation;  // NaN where an element is not finite

    CAIRN_HD double inverse_deviation(double eps) const { return 1 / std::hypot(deviation, std::sqrt(eps)); }
};

/// Of x[0], x[stride], …: n of them.
template <class T>
CAIRN_HD inline wide_moments wide_moments_of(index_t n, index_t stride, const T* x) {
    double largest = 0;
    for (index_t i = 0; i < n; ++i) {
        const double v = std::abs(static_cast<double>(x[i * stride]));
        if (v - v != 0) return {v - v, v - v};
        largest = v > largest ? v : largest;
    }
    if (largest == 0) return {0, 0};
    const int power = std::ilogb(largest);
    const double down = std::ldexp(1.0, -power), count = static_cast<double>(n);
    double sum = 0, squares = 0;
    for (index_t i = 0; i < n; ++i) sum += static_cast<double>(x[i * stride]) * down;
    const double mean = sum / count;
    for (index_t i = 0; i < n; ++i) {
        const double d = static_cast<double>(x[i * stride]) * down - mean;
        squares += d * d;
    }
    return {std::ldexp(mean, power), std::ldexp(std::sqrt(squares / count), power)};
}

}  // namespace cairn::detail
