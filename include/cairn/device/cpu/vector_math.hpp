#pragma once
// Elementary functions without branches or calls, so that a loop around them becomes vector code on any instruction
// set.
//   exp:      x = n ln2 + r, |r| ≤ ln2 / 2;   exp(x) = 2^n (1 + q(r)),  q the Taylor series of exp(r) - 1
//   tanh:     u = exp(2|x|) - 1 = 2^n q(r) + (2^n - 1);   tanh(x) = ± u / (u + 2)
//   sigmoid:  1 / (1 + exp(-x))
//   erfc:     x ≥ 0, t = 2 / (2 + x):   erfc(x) = t exp(-x² + P(2t - 1)), P a polynomial;   erfc(-x) = 2 - erfc(x)
// The fused multiply-adds come from contraction, where the target has them. Largest errors, tested, for float and
// double:
//   exp 2 ulp, tanh 3 ulp, sigmoid 3 ulp, erfc 4 units of the last place of 1
// NaN stays NaN, infinities give the limits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
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

/// Coefficients of P, the powers of u = 2t - 1: a Chebyshev series of log(erfc(x) / t) + x² (a cosine transform of its
/// values at 60 nodes, in 50 digits), cut where T ends.
template <class T>
inline constexpr T erfc_powers[]{T(0)};
template <>
inline constexpr float erfc_powers<float>[] {
    -0.671794085f, 0.672643155f, 0.0473434175f, -0.0468936406f, -0.00987453492f, 0.00880882537f, 0.00177066612f,
        -0.00228876524f, -0.000182782142f, 0.000573766372f, -0.0000321137723f, -0.0000872838102f, 0.0000133715035f
};
template <>
inline constexpr double erfc_powers<double>[] {
    -0.671794084056692266, 0.672643223977656728, 0.0473433068419044283, -0.0468956102311752965, -0.00987268936638995857,
        0.00882493855706062317, 0.00175893355779901609, -0.00234581250048285335, -1.46246863378003364e-4,
        6.73678795580234959e-4, -9.37350311709817049e-5, -1.7430294720307622e-4, 7.14010141275703064e-5,
        3.17451797494374039e-5, -3.01878845513942443e-5, 1.37726641344644184e-7, 8.56262342012128565e-6,
        -2.94798687699825925e-6, -1.27231190486886998e-6, 1.25002766125697535e-6, -1.68498007206532974e-7,
        -2.49583276171966702e-7, 1.53343459209081768e-7, 1.44486580462526815e-9, -3.91718205102718581e-8,
        1.11723522636237577e-8, 4.0608821469697202e-9, -1.89023060089445363e-9
};

/// P by Horner from coefficient K on.
template <class T, int K = 0>
[[gnu::always_inline]] inline T erfc_series(T u) {
    if constexpr (K + 1 == static_cast<int>(std::size(erfc_powers<T>)))
        return erfc_powers<T>[K];
    else
        return erfc_series<T, K + 1>(u) * u + erfc_powers<T>[K];
}

}  // namespace detail

/// Complementary error function.
template <class T>
[[gnu::always_inline]] inline T erfc(T x) {
    const T a = std::abs(x);
    const T t = T(2) / (T(2) + a);
    const T e = t * exp(detail::erfc_series(T(2) * t - T(1)) - a * a);
    const T sign = std::copysign(T(1), x);
    return (T(1) - sign) + sign * e;
}

}  // namespace cairn::vector_math
