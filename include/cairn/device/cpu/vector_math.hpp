#pragma once
// Elementary functions without branches or calls, so that a loop around them becomes vector code on any instruction
// set.
//   exp:      x = n ln2 + r, |r| ≤ ln2 / 2;   exp(x) = 2^n (1 + q(r)),  q the Taylor series of exp(r) - 1
//   tanh:     u = exp(2|x|) - 1 = 2^n q(r) + (2^n - 1);   tanh(x) = ± u / (u + 2)
//   sigmoid:  1 / (1 + exp(-x))
//   erfc:     x ≥ 0, t = 2 / (2 + x):   erfc(x) = t P(2t - 1) exp(-x²), P a polynomial;   erfc(-x) = 2 - erfc(x)
// The fused multiply-adds come from contraction, where the target has them. Largest errors, tested, for float and
// double:
//   exp 2 ulp, tanh 3 ulp, sigmoid 3 ulp, erfc 4 units of the last place of 1
// NaN stays NaN, infinities give the limits.

#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <type_traits>
#include <utility>

namespace cairn::vector_math {

/// The number type of a vector's lanes.
template <class V>
using lane_of = std::remove_cvref_t<decltype(std::declval<V>()[0])>;

/// The bit layout of T and the constants that go with it, numbers also for vectors: nvcc 13.0 crashes where it
/// evaluates a constant vector. T is float, double or a vector of them (simd.hpp).
template <class V>
struct format : format<lane_of<V>> {
    typedef typename format<lane_of<V>>::bits bits __attribute__((vector_size(sizeof(V))));
};

template <>
struct format<float> {
    using bits = std::uint32_t;
    static constexpr int fraction_bits = 23;
    static constexpr bits exponent_bias = 127;
    static constexpr float round_shift = 0x1.8p23f;  // adding it rounds to an integer, which then sits in the low bits
    static constexpr bits round_shift_bits = std::bit_cast<bits>(round_shift);
    static constexpr float inverse_ln2 = 0x1.715476p0f;
    static constexpr float ln2_high = 0x1.63p-1f, ln2_low = -0x1.bd0106p-13f;  // n * ln2_high is exact
    static constexpr float exp_min = -104.0f, exp_max = 89.0f;                 // beyond: 0 and infinity
    static constexpr float exp_flush = -88.0f;                                 // 2^-127, whose bits are those of 0
    static constexpr float tanh_max = 10.0f;                                   // beyond: 1
    static constexpr int terms = 7;  // of the Taylor series of exp: remainder 5e-9
};

template <>
struct format<double> {
    using bits = std::uint64_t;
    static constexpr int fraction_bits = 52;
    static constexpr bits exponent_bias = 1023;
    static constexpr double round_shift = 0x1.8p52;
    static constexpr bits round_shift_bits = std::bit_cast<bits>(round_shift);
    static constexpr double inverse_ln2 = 0x1.71547652b82fep0;
    static constexpr double ln2_high = 0x1.62e42feep-1, ln2_low = 0x1.a39ef35793c76p-33;
    static constexpr double exp_min = -746.0, exp_max = 710.0;
    static constexpr double exp_flush = -709.0;
    static constexpr double tanh_max = 20.0;
    static constexpr int terms = 13;  // remainder 4e-18
};

namespace detail {

/// 1 / k!
constexpr double inverse_factorial(int k) {
    double f = 1;
    for (int i = 2; i <= k; ++i) f *= i;
    return 1 / f;
}

/// 1/2! + r/3! + r²/4! + … by Horner.
template <class T, int K = 2>
[[gnu::always_inline]] inline T series(T r) {
    constexpr auto term = static_cast<decltype(format<T>::round_shift + 0)>(inverse_factorial(K));
    if constexpr (K == format<T>::terms)
        return T{} + term;
    else
        return series<T, K + 1>(r) * r + term;
}

/// 2^n for n in the range of normal exponents, n given in the low bits of a rounded number.
template <class T>
[[gnu::always_inline]] inline T power_of_two(typename format<T>::bits n) {
    return std::bit_cast<T>((n + format<T>::exponent_bias) << format<T>::fraction_bits);
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
    const T shifted = x * f::inverse_ln2 + f::round_shift;
    const T n = shifted - f::round_shift;
    const T r = (x - n * f::ln2_high) - n * f::ln2_low;
    return {std::bit_cast<bits>(shifted) - f::round_shift_bits, r + r * r * series(r)};
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

/// e^x for x ≤ 0 and, as rounding may have it, a little above; 0 where e^x is no normal number. Two thirds of the
/// operations of exp. T may be a vector.
template <class T>
[[gnu::always_inline]] inline T exp_nonpositive(T x) {
    using f = format<T>;
    const auto [n, q] = detail::reduce(x < f::exp_flush ? T{} + f::exp_flush : x);
    const T scale = detail::power_of_two<T>(n);
    return scale + scale * q;
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

/// Coefficients of P, the powers of u = 2t - 1: a Chebyshev series of erfc(x) exp(x²) / t (a cosine transform of its
/// values at 60 nodes, in 60 digits), cut where T ends.
template <class T>
inline constexpr T erfc_powers[]{T(0)};
template <>
inline constexpr float erfc_powers<float>[] {
    0.510791357f, 0.343580319f, 0.139735734f, 0.0182216694f, -0.0107516262f, -0.00324345192f, 0.00152915716f,
        0.000430670488f, -0.000299382712f, -3.66018769e-5f, 4.21611972e-5f
};
template <>
inline constexpr double erfc_powers<double>[] {
    0.510791352621011489, 0.343580342206905137, 0.139736046278026891, 0.0182211157534590399, -0.0107553309447163639,
        -0.00323959253458206746, 0.00154530602905764369, 0.00041864804327911113, -0.000331536747619460443,
        -0.0000171858318748897515, 0.0000722353506143854335, -0.0000170737811338189144, -0.0000108480572688910958,
        8.0578758671473404e-6, -5.62816693519292463e-7, -1.81503550805416656e-6, 1.00091858626541011e-6,
        -1.37545082331859451e-8, -2.85548182383411717e-7, 1.78672294791685345e-7, -1.69827240129356662e-9,
        -6.96584294340913831e-8, 2.90419854442090857e-8, 1.32163255176326486e-8, -9.7447566259322578e-9,
        -1.05903331435717986e-9, 1.20516659958836367e-9
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

/// Complementary error function; e: exp(-x²), where the caller has it.
template <class T>
[[gnu::always_inline]] inline T erfc(T x, T e) {
    const T t = T(2) / (T(2) + std::abs(x));
    const T sign = std::copysign(T(1), x);
    return (T(1) - sign) + sign * (t * detail::erfc_series(T(2) * t - T(1)) * e);
}
template <class T>
[[gnu::always_inline]] inline T erfc(T x) {
    return erfc(x, exp_nonpositive(-x * x));
}

}  // namespace cairn::vector_math
