#pragma once
// Products of layers with a bias, or a sum, on the host: a product and a pass over its result, for every kernel of
// gemm.hpp the same one; and the two gradients of a weight and its bias. On a GPU these are one product each,
// device/cuda/gemm.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/epilogue.hpp>

namespace cairn {

namespace detail {

/// to = act(row + bias + added) of rows of n numbers of S.
template <class S, class T>
void finish_rows(index_t m, index_t n, const S* from, index_t stride, T* to, index_t ldc, const T* bias, activation act,
                 const T* added) {
    parallel_for(m, std::max<index_t>(1, 16384 / std::max<index_t>(n, 1)), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const S* const row = from + r * stride;
            T* const out = to + r * ldc;
            const auto finish = [=](auto function) {
#pragma omp simd
                for (index_t j = 0; j < n; ++j) {
                    S v = row[j];
                    if (bias) v += S{bias[j]};
                    if (added) v += S{added[r * ldc + j]};
                    out[j] = function(v);
                }
            };
            if (act == activation::relu)
                finish([](S v) __attribute__((always_inline)) { return v <= S{} ? S{} : v; });
            else if (act == activation::gelu)
                finish([](S v) __attribute__((always_inline)) { return functions::gelu<S>::value(v); });
            else if (act == activation::gelu_tanh)
                finish([](S v) __attribute__((always_inline)) { return functions::gelu_tanh<S>::value(v); });
            else
                finish([](S v) __attribute__((always_inline)) { return v; });
        }
    });
}

#define CAIRN_COMPILED_FINISH(part, T) \
    CAIRN_COMPILED_ONCE(               \
        part, void finish_rows(index_t, index_t, const T*, index_t, T*, index_t, const T*, activation, const T*))
CAIRN_COMPILED_FINISH(layers_float, float)
CAIRN_COMPILED_FINISH(layers_double, double)

}  // namespace detail

/// c (m × n) = act(alpha op(a) op(b) + bias + added), bias (n) or null, added (m × n, rows as far apart as c's, not c
/// itself) or null; act: none, relu, gelu or gelu_tanh. c is not read. A NaN stays one. Results in bfloat16 are rounded
/// once.
template <class T>
void gemm_bias(cpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, simd::arithmetic<T> alpha, const T* a,
               index_t lda, const T* b, index_t ldb, T* c, index_t ldc, const T* bias,
               activation act = activation::none, const T* added = nullptr) {
    using S = simd::arithmetic<T>;
    check_epilogue(act);
    gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s);
    const double mn = static_cast<double>(m) * static_cast<double>(n);
    const kernel_call call(
        "gemm bias", format_name<T>,
        2 * mn * static_cast<double>(k) + (bias ? mn : 0) + (added ? mn : 0) + (act == activation::none ? 0 : mn),
        static_cast<double>(sizeof(T)) *
            (static_cast<double>((m + n) * k) + mn + (bias ? static_cast<double>(n) : 0) + (added ? mn : 0)),
        {m, n, k, trans_a, trans_b, bias != nullptr, added != nullptr, static_cast<index_t>(act)});
    const bool more = added || act != activation::none;
    if constexpr (std::is_same_v<T, S>) {
        gemm_detail::product(true, s, alpha, a, b, S{}, c);
        if (bias || more) detail::finish_rows(m, n, c, ldc, c, ldc, bias, act, added);
    } else {
        if (!more && gemm_detail::product_with_bias(s, alpha, a, b, bias, c)) return;
        tensor<S> sums({m, n}, memory_category::workspace);
        s.ldc = n;
        gemm_detail::product(true, s, alpha, a, b, S{}, sums.data());
        detail::finish_rows(m, n, sums.data(), n, c, ldc, bias, act, added);
    }
}

/// dw (out × in) += dyᵀ x and, unless db is null, db (out) += column sums of dy; dy (rows, out), x (rows, in).
template <class T, class W>
void linear_gradients(cpu d, index_t rows, index_t out, index_t in, const T* dy, const T* x, W* dw,
                      std::type_identity_t<W>* db) {
    gemm(d, true, false, out, in, rows, W{1}, dy, out, x, in, W{1}, dw, in);
    if (db) column_sums(d, rows, out, dy, db, true);
}

}  // namespace cairn
