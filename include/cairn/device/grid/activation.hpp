#pragma once
// Elementwise activation functions on a grid device: same names, arguments and formulas as device/cpu/activation.hpp,
// in float (double for double) with the device's exp and erfc. Packets of eight elements, so that the bits of relu are
// whole bytes.
// Bytes: x and y; saved, dy and dx. GELU in float without erfc, whose instructions outlast the bytes:
//   Φ(x) = erfc(u) / 2 for x < 0, 1 − erfc(u) / 2 else,   u = |x| / √2
//   erfc(u) = exp(−u²) t P(t),   t = 1 / (1 + 0.42 u)
// P of degree 7, relative error 7e-8 for u < 7.5 (a minimax fit); the derivative Φ + x exp(−u²) / √(2π) takes the same
// exp.

#include <cairn/device/activation_kind.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cmath>
#include <cstdint>
#include <type_traits>

namespace cairn {

namespace grid {

template <class S>
CAIRN_HD inline S logistic(S x) {
    return S(1) / (S(1) + std::exp(-x));
}

/// Φ(x) of the standard normal distribution, and exp(−x² / 2).
template <class S>
struct normal_cdf {
    S value, power;
    CAIRN_HD explicit normal_cdf(S x) {
        power = std::exp(S(-0.5) * x * x);
        value = S(0.5) * std::erfc(x * static_cast<S>(-0.70710678118654752440));
    }
};
template <>
struct normal_cdf<float> {
    float value, power;
    CAIRN_HD explicit normal_cdf(float x) {
        const float below = 1 + 0.29698485f * std::abs(x);  // 0.42 / √2
#if defined(__CUDA_ARCH__)
        const float t = __fdividef(1.0f, below);  // 0 where below > 2^126: exp is 0 there
#else
        const float t = 1 / below;
#endif
        float p = 0.07394122839f;
        for (const float c : {-0.33610665932f, 0.46878640597f, -0.15728868411f, 0.28346814145f, 0.19005478199f,
                              0.24037522656f, 0.23676948952f})
            p = p * t + c;
        power = std::exp(-0.5f * x * x);
        const float tail = 0.5f * power * t * p;
        value = x < 0 ? tail : 1 - tail;
    }
};

/// act(x).
template <class S>
CAIRN_HD inline S activation_value(activation act, S x) {
    switch (act) {
        case activation::sigmoid:
            return logistic(x);
        case activation::tanh:
            return std::tanh(x);
        case activation::silu:
            return x * logistic(x);
        case activation::gelu:
            return x * normal_cdf<S>(x).value;
        case activation::gelu_tanh:
            return x * logistic(static_cast<S>(1.59576912160573071176) * (x + static_cast<S>(0.044715) * x * x * x));
        default:
            return x;
    }
}

/// Its derivative, from the output for sigmoid and tanh, else from the input.
template <class S>
CAIRN_HD inline S activation_slope(activation act, S saved) {
    switch (act) {
        case activation::sigmoid:
            return saved * (S(1) - saved);
        case activation::tanh:
            return S(1) - saved * saved;
        case activation::silu: {
            const S s = logistic(saved);
            return s * (S(1) + saved * (S(1) - s));
        }
        case activation::gelu: {
            const normal_cdf<S> cdf(saved);
            return cdf.value + saved * static_cast<S>(0.39894228040143267794) * cdf.power;
        }
        case activation::gelu_tanh: {
            const S a = static_cast<S>(1.59576912160573071176), b = static_cast<S>(0.044715);
            const S s = logistic(a * (saved + b * saved * saved * saved));
            const S near = saved < S(-100) ? S(-100) : saved > S(100) ? S(100) : saved;  // x² beyond may be infinite
            return s + near * s * (S(1) - s) * a * (S(1) + S(3) * b * near * near);
        }
        default:
            return S(1);
    }
}

// A kernel for each function: to choose one for each element would keep neighbours from being computed side by side.

template <activation Act, class T>
struct activation_forward_rule {
    CAIRN_HD void operator()(T x, T& y) const {
        y = static_cast<T>(activation_value(Act, static_cast<sum_type<T>>(x)));
    }
};

template <activation Act, class T>
struct activation_backward_rule {
    CAIRN_HD void operator()(T saved, T dy, T& dx) const {
        using S = sum_type<T>;
        dx = static_cast<T>(static_cast<S>(dy) * activation_slope(Act, static_cast<S>(saved)));
    }
};

/// y and bits of x, or dx of dy and bits.
template <class T, bool Forward>
struct sign_pass {
    index_t n;
    bool aligned;
    sum_type<T> slope;
    const T* from;
    T* to;
    std::uint8_t* bits;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const index_t packets = (n + packet_lanes - 1) / packet_lanes, stride = b.blocks() * b.threads();
        for (index_t p = b.block() * b.threads() + b.thread(); p < packets; p += stride) {
            const index_t at = p * packet_lanes;
            const int count = n - at < packet_lanes ? static_cast<int>(n - at) : packet_lanes;
            const bool whole = aligned && count == packet_lanes;
            T v[packet_lanes];
            load_packet(from + at, whole, count, v);
            unsigned kept = Forward ? 0u : bits[p];
            for (int j = 0; j < packet_lanes; ++j) {
                const S s = static_cast<S>(v[j]);
                if constexpr (Forward) kept |= (!(s <= 0) ? 1u : 0u) << j;
                v[j] = kept >> j & 1u ? v[j] : static_cast<T>(leaked(slope, s));
            }
            store_packet(to + at, whole, count, v);
            if constexpr (Forward)
                if (bits) bits[p] = static_cast<std::uint8_t>(kept);
        }
    }
};

template <bool Forward, class T, GridDevice D>
void sign_pass_over(D, index_t n, sum_type<T> slope, const T* from, T* to, std::uint8_t* bits) {
    if (n > 0)
        D::launch({.blocks = blocks_for<D>((n + packet_lanes - 1) / packet_lanes, 256), .threads = 256},
                  sign_pass<T, Forward>{n, packets_fit(from, to), slope, from, to, bits});
}

/// f(the function as a constant), or throws where it is not smooth.
template <class F>
void for_smooth(activation act, F&& f) {
    const auto one = [&]<activation Act>(std::integral_constant<activation, Act> constant) {
        if (act == Act) f(constant);
        return act == Act;
    };
    const bool found = one(std::integral_constant<activation, activation::sigmoid>{}) ||
                       one(std::integral_constant<activation, activation::tanh>{}) ||
                       one(std::integral_constant<activation, activation::silu>{}) ||
                       one(std::integral_constant<activation, activation::gelu>{}) ||
                       one(std::integral_constant<activation, activation::gelu_tanh>{});
    require(found, "activation: ", name_of(act), " is not a smooth function");
}

}  // namespace grid

/// y = relu or leaky relu of x (slope 0 for relu) and the bit "not (x ≤ 0)" of each element, in whole packs, or null.
template <class T, GridDevice D>
void sign_activation_forward(D d, index_t n, grid::sum_type<T> slope, const T* x, T* y, std::uint8_t* bits) {
    flop_counter::count(static_cast<double>(n),
                        2.0 * static_cast<double>(n) * sizeof(T) + (bits ? static_cast<double>(n) / 8 : 0));
    grid::sign_pass_over<true>(d, n, slope, x, y, bits);
}

/// dx = dy where the bit is set, slope dy elsewhere.
template <class T, GridDevice D>
void sign_activation_backward(D d, index_t n, grid::sum_type<T> slope, const T* dy, const std::uint8_t* bits, T* dx) {
    flop_counter::count(2.0 * static_cast<double>(n), (2.0 * sizeof(T) + 0.125) * static_cast<double>(n));
    grid::sign_pass_over<false>(d, n, slope, dy, dx, const_cast<std::uint8_t*>(bits));
}

/// y = act(x) for sigmoid, tanh, silu, gelu, gelu_tanh. Throws for another.
template <class T, GridDevice D>
void activation_forward(D d, activation act, index_t n, const T* x, T* y) {
    flop_counter::count(static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    grid::for_smooth(act, [&]<activation Act>(std::integral_constant<activation, Act>) {
        for_each(d, n, grid::activation_forward_rule<Act, T>{}, x, y);
    });
}

/// dx = dy act'; `saved` is y of sigmoid and tanh, x of the others. Throws for one that is not smooth.
template <class T, GridDevice D>
void activation_backward(D d, activation act, index_t n, const T* saved, const T* dy, T* dx) {
    flop_counter::count(2.0 * static_cast<double>(n), 3.0 * static_cast<double>(n) * sizeof(T));
    grid::for_smooth(act, [&]<activation Act>(std::integral_constant<activation, Act>) {
        for_each(d, n, grid::activation_backward_rule<Act, T>{}, saved, dy, dx);
    });
}

}  // namespace cairn
