#pragma once
// Shared by laws that compare with plain loops: numbers, arrays that begin off a packet, comparison with an oracle's
// doubles.

#include "device/cuda/kernel_laws.hpp"

#include <cstring>
#include <type_traits>
#include <vector>

namespace cairn::kernel_laws {

inline constexpr double infinity = std::numeric_limits<double>::infinity(),
                        not_a_number = std::numeric_limits<double>::quiet_NaN();

/// Normal numbers of this deviation and mean; another stream, other numbers.
template <class T>
tensor<T> drawn(shape s, std::uint32_t stream, double deviation, double mean = 0) {
    tensor<T> t(s);
    const random_stream random{seed(), stream, 0};
    using number = std::conditional_t<sizeof(T) == 8, double, float>;  // what a T is made of
    for (index_t i = 0; i < t.size(); ++i)
        t[i] = static_cast<T>(static_cast<number>(mean + deviation * random.normal(static_cast<std::uint64_t>(i))));
    return t;
}

/// Numbers of [-1, 1) that cost little, for long arrays.
template <class T>
tensor<T> spread(shape s) {
    tensor<T> t(s);
    std::uint32_t state = static_cast<std::uint32_t>(seed());
    for (index_t i = 0; i < t.size(); ++i) {
        state = state * 1664525u + 1013904223u;
        t[i] = static_cast<T>(static_cast<double>(state >> 8) * 0x1p-23 - 1);
    }
    return t;
}

template <class T>
tensor<T> of_numbers(const std::vector<double>& values) {
    tensor<T> t({static_cast<index_t>(values.size())});
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<T>(values[static_cast<std::size_t>(i)]);
    return t;
}

template <class T>
std::vector<double> doubles(const tensor<T>& t) {
    std::vector<double> v(static_cast<std::size_t>(t.size()));
    for (index_t i = 0; i < t.size(); ++i) v[static_cast<std::size_t>(i)] = static_cast<double>(t[i]);
    return v;
}

/// Relative rounding error of T times a factor.
template <class T>
constexpr double eps(double factor) {
    return factor * (sizeof(T) == 8 ? 0x1p-53 : sizeof(T) == 4 ? 0x1p-24 : 0x1p-8);
}

/// |a - b| ≤ tolerance · max(1, |b|) for all elements; NaN equals NaN.
template <class T, class Expected>
void check_near(const tensor<T>& got, const std::vector<Expected>& expected, double tolerance) {
    REQUIRE(static_cast<std::size_t>(got.size()) == expected.size());
    for (index_t i = 0; i < got.size(); ++i) {
        const double a = static_cast<double>(got[i]), b = static_cast<double>(expected[static_cast<std::size_t>(i)]);
        if (a == b || (std::isnan(a) && std::isnan(b))) continue;
        if (std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b))) continue;
        FAIL_CHECK("element " << i << " of " << got.size() << " is " << a << ", expected " << b << ", allowed "
                              << tolerance);
        return;
    }
}

template <class T, class D, class Expected>
void check_near(const tensor<T, D>& got, const std::vector<Expected>& expected,
                double tolerance) requires(!std::same_as<D, cpu>) {
    check_near(got.on_host(), expected, tolerance);
}

template <class T>
bool same_bits(const tensor<T>& a, const tensor<T>& b) {
    return a.size() == b.size() &&
           (a.size() == 0 || std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0);
}

template <class T, class D>
bool same_bits(const tensor<T, D>& a, const tensor<T, D>& b) requires(!std::same_as<D, cpu>) {
    return same_bits(a.on_host(), b.on_host());
}

/// An array on D whose first element lies `off` elements behind an address that fits packets.
template <class T, class D>
class placed {
public:
    placed(const tensor<T>& host, index_t off) : off_(off), all_({host.size() + off}), shape_(host.shape()) {
        D::copy_to_device(data(), host.data(), host.bytes());
    }
    placed(shape s, index_t off) : off_(off), all_({s.size() + off}), shape_(s) {
        D::set_bytes(all_.data(), 0xff, all_.bytes());  // not numbers
    }
    T* data() { return all_.data() + off_; }
    const T* data() const { return all_.data() + off_; }
    tensor<T> on_host() const {
        tensor<T> t(shape_);
        D::copy_to_host(t.data(), data(), t.bytes());
        return t;
    }

private:
    index_t off_;
    tensor<T, D> all_;
    shape shape_;
};

}  // namespace cairn::kernel_laws
