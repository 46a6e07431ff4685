#pragma once
// Elementwise activation functions. Each is a functor of one scalar, vectorised by the loop that calls it:
//   relu        max(x, 0)                                   derivative from one bit, "not (x ≤ 0)"
//   leaky_relu  x or slope x                                derivative from that bit
//   sigmoid     1 / (1 + e^-x)                              y (1 - y)
//   tanh                                                    1 - y²
//   silu        x sigmoid(x)                                s (1 + x (1 - s)),   s = sigmoid(x)
//   gelu        x Φ(x),  Φ(x) = erfc(-x / √2) / 2           Φ(x) + x e^(-x²/2) / √2π
//   gelu_tanh   x (1 + tanh v) / 2 = x sigmoid(2v),  v = √(2/π) (x + 0.044715 x³)
//               (Hendrycks and Gimpel, arXiv:1606.08415)
// Memory traffic of size s: forward s read, s written (+ 1/8 byte); backward dy and (1/8 byte, or y, or x) read, dx
// written. y may be x, dx may be dy. A NaN stays one. T stores, S computes: float for bfloat16.
// Tested against tests/oracle/activation.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/activation_kind.hpp>
#include <cairn/device/cpu/vector_math.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <cstdint>
#include <numbers>

namespace cairn {

// Always inlined, because a compiler that optimises them on their own makes branches that it cannot turn back into
// vector code.
namespace functions {

template <class T>
struct sigmoid {
    [[gnu::always_inline]] static T value(T x) { return vector_math::sigmoid(x); }
    [[gnu::always_inline]] static T derivative(T y) { return y * (T(1) - y); }
};

template <class T>
struct tanh {
    [[gnu::always_inline]] static T value(T x) { return vector_math::tanh(x); }
    [[gnu::always_inline]] static T derivative(T y) { return T(1) - y * y; }
};

template <class T>
struct silu {
    [[gnu::always_inline]] static T value(T x) { return x * vector_math::sigmoid(x); }
    [[gnu::always_inline]] static T derivative(T x) {
        const T s = vector_math::sigmoid(x);
        return s * (T(1) + x * (T(1) - s));
    }
};

template <class T>
struct gelu {
    [[gnu::always_inline]] static T bell(T x) { return vector_math::exp_nonpositive(T(-0.5) * x * x); }
    /// Φ(x); e: bell(x).
    [[gnu::always_inline]] static T below(T x, T e) {
        return T(0.5) * vector_math::erfc(x * static_cast<T>(-1 / std::numbers::sqrt2), e);
    }
    [[gnu::always_inline]] static T value(T x) { return x * below(x, bell(x)); }
    [[gnu::always_inline]] static T derivative(T x) {
        constexpr T density = static_cast<T>(0.39894228040143267794);  // 1 / √2π
        const T e = bell(x);
        return below(x, e) + x * density * e;
    }
};

template <class T>
struct gelu_tanh {
    static constexpr T a = static_cast<T>(1.59576912160573071176), b = static_cast<T>(0.044715);  // 2 √(2/π)
    [[gnu::always_inline]] static T below(T x) { return vector_math::sigmoid(a * (x + b * x * x * x)); }
    [[gnu::always_inline]] static T value(T x) { return x * below(x); }
    [[gnu::always_inline]] static T derivative(T x) {
        const T s = below(x);
        // Beyond ±100 s (1 - s) is 0, and x² may be infinite.
        const T near = x < T(-100) ? T(-100) : x > T(100) ? T(100) : x;
        return s + near * s * (T(1) - s) * a * (T(1) + T(3) * b * near * near);
    }
};

}  // namespace functions

/// Saved operand of backward, besides dy.
enum class activation_saves { nothing, bits, output, input };

constexpr activation_saves saves_of(activation a) {
    switch (a) {
        case activation::none:
            return activation_saves::nothing;
        case activation::relu:
        case activation::leaky_relu:
            return activation_saves::bits;
        case activation::sigmoid:
        case activation::tanh:
            return activation_saves::output;
        default:
            return activation_saves::input;
    }
}

/// Operations per element that work counters and costs take an activation for; the functions' insides are not counted.
constexpr double activation_flops = 1, activation_backward_flops = 2;

namespace detail {

/// Elements that a thread takes at a time, a multiple of the lanes.
inline constexpr index_t activation_grain = index_t{1} << 15;

template <class F, class T>
void map_values(index_t n, const T* x, T* y) {
#pragma omp simd
    for (index_t i = 0; i < n; ++i) y[i] = F::value(simd::arithmetic<T>{x[i]});
}

template <class F, class T>
void map_derivatives(index_t n, const T* at, const T* dy, T* dx) {
#pragma omp simd
    for (index_t i = 0; i < n; ++i) dx[i] = dy[i] * F::derivative(simd::arithmetic<T>{at[i]});
}

/// Calls f with the functor of a smooth activation.
template <class T, class F>
void with_smooth_activation(activation act, F&& f) {
    switch (act) {
        case activation::sigmoid:
            return f(functions::sigmoid<T>{});
        case activation::tanh:
            return f(functions::tanh<T>{});
        case activation::silu:
            return f(functions::silu<T>{});
        case activation::gelu:
            return f(functions::gelu<T>{});
        case activation::gelu_tanh:
            return f(functions::gelu_tanh<T>{});
        default:
            fail("activation: ", name_of(act), " is not a smooth function");
    }
}

}  // namespace detail

/// y = relu or leaky relu of x (slope 0 for relu) and the bit "not (x ≤ 0)" of each element: simd::mask_bytes<S>(n)
/// bytes, or null.
template <class T>
void sign_activation_forward(cpu, index_t n, simd::arithmetic<T> slope, const T* x, T* y, std::uint8_t* bits) {
    using S = simd::arithmetic<T>;
    const kernel_call call("sign activation forward", format_name<T>, activation_flops * static_cast<double>(n),
                           2.0 * static_cast<double>(n) * sizeof(T) + (bits ? static_cast<double>(n) / 8 : 0), {n});
    const auto run = [=](auto keep_bits, auto leaky) {
        parallel_for(n, detail::activation_grain, [=](index_t begin, index_t end) {
            const simd::pack<S> s(slope), zero(S{});
            simd::for_packs<S>(end - begin, [=](index_t i, auto count) {
                const simd::pack<S> v = simd::load(x + begin + i, count);
                const simd::mask<S> m = simd::not_less_equal(v, zero);
                if constexpr (keep_bits()) simd::store_bits(bits + (begin + i) / 8, m);
                if constexpr (leaky())
                    simd::store(y + begin + i, simd::select(m, v, s * v), count);
                else
                    simd::store(y + begin + i, simd::keep(m, v), count);
            });
        });
    };
    using std::false_type, std::true_type;
    if (bits)
        slope == 0 ? run(true_type{}, false_type{}) : run(true_type{}, true_type{});
    else
        slope == 0 ? run(false_type{}, false_type{}) : run(false_type{}, true_type{});
}

/// dx = dy where the bit is set, slope dy elsewhere.
template <class T>
void sign_activation_backward(cpu, index_t n, simd::arithmetic<T> slope, const T* dy, const std::uint8_t* bits, T* dx) {
    using S = simd::arithmetic<T>;
    const kernel_call call("sign activation backward", format_name<T>,
                           activation_backward_flops * static_cast<double>(n),
                           (2.0 * sizeof(T) + 0.125) * static_cast<double>(n), {n});
    const auto run = [=](auto leaky) {
        parallel_for(n, detail::activation_grain, [=](index_t begin, index_t end) {
            const simd::pack<S> s(slope);
            simd::for_packs<S>(end - begin, [=](index_t i, auto count) {
                const simd::pack<S> g = simd::load(dy + begin + i, count);
                const simd::mask<S> m = simd::load_bits<S>(bits + (begin + i) / 8);
                if constexpr (leaky())
                    simd::store(dx + begin + i, simd::select(m, g, s * g), count);
                else
                    simd::store(dx + begin + i, simd::keep(m, g), count);
            });
        });
    };
    slope == 0 ? run(std::false_type{}) : run(std::true_type{});
}

/// y = act(x) for sigmoid, tanh, silu, gelu, gelu_tanh.
template <class T>
void activation_forward(cpu, activation act, index_t n, const T* x, T* y) {
    const kernel_call call("activation forward", format_name<T>, activation_flops * static_cast<double>(n),
                           2.0 * static_cast<double>(n) * sizeof(T), {n, static_cast<index_t>(act)});
    detail::with_smooth_activation<simd::arithmetic<T>>(act, [=](auto function) {
        parallel_for(n, detail::activation_grain, [=](index_t begin, index_t end) {
            detail::map_values<decltype(function)>(end - begin, x + begin, y + begin);
        });
    });
}

/// dx = dy act', from the output of sigmoid and tanh, from the input of silu, gelu and gelu_tanh.
template <class T>
void activation_backward(cpu, activation act, index_t n, const T* saved, const T* dy, T* dx) {
    const kernel_call call("activation backward", format_name<T>, activation_backward_flops * static_cast<double>(n),
                           3.0 * static_cast<double>(n) * sizeof(T), {n, static_cast<index_t>(act)});
    detail::with_smooth_activation<simd::arithmetic<T>>(act, [=](auto function) {
        parallel_for(n, detail::activation_grain, [=](index_t begin, index_t end) {
            detail::map_derivatives<decltype(function)>(end - begin, saved + begin, dy + begin, dx + begin);
        });
    });
}

}  // namespace cairn
