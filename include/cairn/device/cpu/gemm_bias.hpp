#pragma once
// Products of layers with a bias, or a sum, on the host: a product and a pass over its result, for every kernel of
// gemm.hpp the same one; and the two gradients of a weight and its bias. On a GPU these are one product each,
// device/cuda/gemm.hpp.

#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/epilogue.hpp>

namespace cairn {

/// c (m × n) = act(alpha op(a) op(b) + bias + added), bias (n) or null, added (m × n, rows as far apart as c's, not c
/// itself) or null; act: none, relu, gelu or gelu_tanh. c is not read. A NaN stays one.
template <class T>
void gemm_bias(cpu, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, T alpha, const T* a, index_t lda,
               const T* b, index_t ldb, T* c, index_t ldc, const T* bias, activation act = activation::none,
               const T* added = nullptr) {
    check_epilogue(act);
    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s);
    gemm_detail::product(true, s, alpha, a, b, T{}, c);
    if (bias || added || act != activation::none)
        parallel_for(m, std::max<index_t>(1, 16384 / std::max<index_t>(n, 1)), [&](index_t begin, index_t end) {
            for (index_t r = begin; r < end; ++r) {
                T* const row = c + r * ldc;
                if (bias) {
#pragma omp simd
                    for (index_t j = 0; j < n; ++j) row[j] += bias[j];
                }
                if (added) {
#pragma omp simd
                    for (index_t j = 0; j < n; ++j) row[j] += added[r * ldc + j];
                }
                if (act == activation::relu) {
#pragma omp simd
                    for (index_t j = 0; j < n; ++j) row[j] = row[j] <= T{} ? T{} : row[j];
                } else if (act == activation::gelu) {
                    detail::map_values<functions::gelu<T>>(n, row, row);
                } else if (act == activation::gelu_tanh) {
                    detail::map_values<functions::gelu_tanh<T>>(n, row, row);
                }
            }
        });
    const double mn = static_cast<double>(m) * static_cast<double>(n);
    flop_counter::count(
        2 * mn * static_cast<double>(k) + (bias ? mn : 0) + (added ? mn : 0) + (act == activation::none ? 0 : mn),
        static_cast<double>(sizeof(T)) *
            (static_cast<double>((m + n) * k) + mn + (bias ? static_cast<double>(n) : 0) + (added ? mn : 0)));
}

/// dw (out × in) += dyᵀ x and, unless db is null, db (out) += column sums of dy; dy (rows, out), x (rows, in).
template <class T>
void linear_gradients(cpu d, index_t rows, index_t out, index_t in, const T* dy, const T* x, T* dw, T* db) {
    gemm(d, true, false, out, in, rows, T{1}, dy, out, x, in, T{1}, dw, in);
    if (db) column_sums(d, rows, out, dy, db, true);
}

}  // namespace cairn
