#pragma once
// Elementary functions without branches or calls, so that a loop around them becomes vector code on any instruction
// set.
//   exp:      x = n ln2 + r, |r| ≤ ln2 / 2;   exp(x) = 2^n (1 + q(r)),  q the Taylor series of exp(r) - 1
//   tanh:     u = exp(2|x|) - 1 = 2^n q(r) + (2^n - 1);   tanh(x) = ± u / (u + 2)
//   sigmoid:  1 / (1 + exp(-x))
//   erfc:     x ≥ 0, t = 2 / (2 + x):   erfc(x) = t exp(-x² + P(2t - 1)),   P a Chebyshev series;   erfc(-x) = 2 -
//   erfc(x)
// The fused multiply-adds come from contraction, where the target has them. Largest errors, tested, for float and
// double:
//   exp 2 ulp, tanh 3 ulp, sigmoid 3 ulp, erfc 4 units of the last place of 1.   NaN stays NaN, infinities give the
//   limits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

namespace cairn::vector_math {

/// The bit layout of T and the constants that go with it.
template <class T>
struct format;

template <>
struct format<float> {
    using bits = std::uint32_t;
    static constexpr int fraction_bits = 23, exponent_bias = 127;
    static constexpr float round_shift = 0x1.8p23f;  // adding it rounds to an integer, which then sits in the low bits
    static constexpr float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;  // n * ln2_high is exact
    static constexpr float exp_min = -104.0f, exp_max = 89.0f;                 // beyond: 0 and infinity
    static constexpr float tanh_max = 10.0f;                                   // beyond: 1
    static constexpr int terms = 7;  // of the Taylor series of exp: remainder 5e-9
    static constexpr int erfc_terms = 13;
};

template <>
struct format<double> {
    using bits = std::uint64_t;
    static constexpr int fraction_bits = 52, exponent_bias = 1023;
    static constexpr double round_shift = 0x1.8p52;
    static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double exp_min = -746.0, exp_max = 710.0;
    static constexpr double tanh_max = 20.0;
    static constexpr int terms = 13;  // remainder 4e-18
    static constexpr int erfc_terms = 28;
};

namespace detail {

/// 1 / k!
template <class T>
constexpr T inverse_factorial(int k) {
    double f = 1;
    for (int i = 2; i <= k; ++i) f *= i;
    return static_cast<T>(1 / f);
}

/// 1/2! + r/3! + r²/4! + … by Horner.
template <class T, int K = 2>
[[gnu::always_inline]] constexpr T series(T r) {
    if constexpr (K == format<T>::terms)
        return inverse_factorial<T>(K);
    else
        return series<T, K + 1>(r) * r + inverse_factorial<T>(K);
}

/// 2^n for n in the range of normal exponents, n given in the low bits of a rounded number.
template <class T>
[[gnu::always_inline]] inline T power_of_two(typename format<T>::bits n) {
    using bits = typename format<T>::bits;
    return std::bit_cast<T>((n + static_cast<bits>(format<T>::exponent_bias)) << format<T>::fraction_bits);
}

/// x = n ln2 + r.
template <class T>
struct reduced {
    typename format<T>::bits n;  // two's complement
    T q;                         // exp(r) - 1
};

template <class T>
[[gnu::always_inline]] inline reduced<T> reduce(T x) {
    using f = format<T>;
    using bits = typename f::bits;
    const T shifted = x * static_cast<T>(1.44269504088896340736) + f::round_shift;
    const T n = shifted - f::round_shift;
    const T r = (x - n * f::ln2_high) - n * f::ln2_low;
    return {std::bit_cast<bits>(shifted) - std::bit_cast<bits>(f::round_shift), r + r * r * series(r)};
}

}  // namespace detail

/// e^x.
template <class T>
[[gnu::always_inline]] inline T exp(T x) {
    using f = format<T>;
    using bits = typename f::bits;
    x = x < f::exp_min ? f::exp_min : x;
    x = x > f::exp_max ? f::exp_max : x;
    const auto [n, q] = detail::reduce(x);
    // Two factors, because 2^n alone may be out of range where the product is not.
    using whole = std::make_signed_t<bits>;
    const bits half = static_cast<bits>(static_cast<whole>(n) >> 1);
    return (T(1) + q) * detail::power_of_two<T>(half) * detail::power_of_two<T>(n - half);
}

/// Hyperbolic tangent.
template <class T>
[[gnu::always_inline]] inline T tanh(T x) {
    using f = format<T>;
    const T a = std::abs(x);
    const auto [n, q] = detail::reduce(T(2) * (a > f::tanh_max ? f::tanh_max : a));
    const T scale = detail::power_of_two<T>(n);
    const T u = q * scale + (scale - T(1));
    return std::copysign(u / (u + T(2)), x);
}

/// 1 / (1 + e^-x).
template <class T>
[[gnu::always_inline]] inline T sigmoid(T x) {
    return T(1) / (T(1) + exp(-x));
}

namespace detail {

/// Chebyshev coefficients of log(erfc(x) / t) + x² over u = 2t - 1: a cosine transform of its values at 60 nodes, in 50
/// digits.
inline constexpr double erfc_series[]{
    -0.65132685989085471,    0.64196979235649030,     0.019476473204185836,    -0.0095615147868086316,
    -9.4659534448203687e-4,  3.6683949785276145e-4,   4.2523324806907771e-5,   -2.0278578112534243e-5,
    -1.6242900046470255e-6,  1.3036558355805232e-6,   1.5626441722066143e-8,   -8.5238095914926543e-8,
    6.5290544390988515e-9,   5.0593434955514689e-9,   -9.9136415649303309e-10, -2.2736512229318359e-10,
    9.6467911020155268e-11,  2.3940380830391147e-12,  -6.8860275264975534e-12, 8.9448792730907257e-13,
    3.1309213993429581e-13,  -1.1270822361367252e-13, 3.8109052551892320e-16,  7.1060976136092370e-15,
    -1.5230282014571043e-15, -9.4574945712912340e-17, 1.2102371892242790e-16,  -2.8166630877471769e-17};

/// Clenshaw's recurrence from coefficient K down, b1 and b2 the two terms above it.
template <int K, class T>
[[gnu::always_inline]] inline T clenshaw(T u, T b1, T b2) {
    if constexpr (K == 0)
        return static_cast<T>(erfc_series[0]) + u * b1 - b2;
    else
        return clenshaw<K - 1>(u, static_cast<T>(erfc_series[K]) + T(2) * u * b1 - b2, b1);
}

}  // namespace detail

/// Complementary error function.
template <class T>
[[gnu::always_inline]] inline T erfc(T x) {
    const T a = std::abs(x);
    const T t = T(2) / (T(2) + a);
    const T e = t * exp(detail::clenshaw<format<T>::erfc_terms - 1>(T(2) * t - T(1), T(0), T(0)) - a * a);
    const T sign = std::copysign(T(1), x);
    return (T(1) - sign) + sign * e;
}

}  // namespace cairn::vector_math
