#pragma once
// Matrix products on the GPU through cuBLASLt (cublaslt.hpp): float (exact, or TF32 where asked), double, bfloat16 and
// float16 with float accumulation.
// With a bias, an activation or the gradient of a bias the product does it before it writes, where cuBLASLt has that;
// else a pass follows.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cuda/cublaslt.hpp>
#include <cairn/device/epilogue.hpp>
#include <cairn/device/gemm_size.hpp>
#include <cairn/device/grid/matrices.hpp>

#include <algorithm>
#include <type_traits>

namespace cairn {

namespace detail {

template <class T, class R>
void count_products(index_t m, index_t n, index_t k, index_t batch, double c_moves) {
    const double mn = static_cast<double>(m) * static_cast<double>(n), b = static_cast<double>(batch);
    flop_counter::count(2 * b * mn * static_cast<double>(k),
                        b * (static_cast<double>(sizeof(T)) * static_cast<double>(m + n) * static_cast<double>(k) +
                             static_cast<double>(sizeof(R)) * mn * c_moves));
}

}  // namespace detail

/// `batch` products of equal size: c (m × n) = alpha op(a) op(b) + beta c, all row-major; operand i starts stride · i
/// elements after the first.
/// T is float, double, bfloat16 or float16; alpha and beta are of the type of the sums, float for the short ones. R is
/// T or that type. With beta 0, c is not read. Sizes may be 0. Throws on a negative size or a leading dimension shorter
/// than a row.
template <class T, class S, class R>
void gemm_batched(cuda d, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, S alpha, const T* a, index_t lda,
                  index_t stride_a, const T* b, index_t ldb, index_t stride_b, S beta, R* c, index_t ldc,
                  index_t stride_c, index_t batch) {
    static_assert(std::is_same_v<S, grid::sum_type<T>>, "alpha and beta: double for double, else float");
    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s, batch);
    detail::count_products<T, R>(m, n, k, batch, beta == S{} ? 1 : 2);
    if (m == 0 || n == 0 || batch == 0) return;
    if (k == 0) {  // cuBLAS wants something to multiply
        if (beta != S{1}) grid::scale_matrices(d, m, n, beta, c, ldc, stride_c, batch);
        return;
    }
    auto shape = detail::product_of(s, a, b, c);
    if (batch > 1) {
        shape.batch = batch, shape.stride_a = stride_a, shape.stride_b = stride_b, shape.stride_c = stride_c;
        shape.alignment = detail::common_power(shape.alignment, stride_a * index_t{sizeof(T)},
                                               stride_b * index_t{sizeof(T)}, stride_c * index_t{sizeof(R)});
    }
    constexpr index_t most = 65472;  // a call: beyond 65535 cuBLASLt may have no algorithm (its grids' third extent)
    for (index_t i = 0; i < batch; i += most) {
        if (batch > 1) shape.batch = std::min(most, batch - i);
        detail::lt_products::mine().run(shape, alpha, a + i * stride_a, b + i * stride_b, beta, c + i * stride_c,
                                        c + i * stride_c);
    }
}

/// One product; sizes may be 0.
template <class T, class S, class R>
void gemm(cuda d, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, S alpha, const T* a, index_t lda,
          const T* b, index_t ldb, S beta, R* c, index_t ldc) {
    gemm_batched(d, trans_a, trans_b, m, n, k, alpha, a, lda, 0, b, ldb, 0, beta, c, ldc, 0, 1);
}

namespace detail {

/// cuBLASLt's name for the end of a product in S, and the activation that is left for a pass behind it. Its GELU is the
/// tanh form, in double with a float's constants (5e-9 off).
template <class S>
struct lt_ending {
    cublasLtEpilogue_t epilogue;
    activation left;
    static constexpr lt_ending of(bool bias, activation act) {
        if (act == activation::relu)
            return {bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU, activation::none};
        if (act == activation::gelu_tanh && !std::is_same_v<S, double>)
            return {bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU, activation::none};
        return {bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT, act};
    }
};

/// The product with its end in it; false where cuBLASLt cannot. Tests ask it which ends are fused.
template <class T>
bool run_fused(const gemm_size& s, grid::sum_type<T> alpha, const T* a, const T* b, T* c, const T* bias, activation act,
               const T* added = nullptr) {
    using S = grid::sum_type<T>;
    if (s.m == 0 || s.n == 0 || s.k == 0) return false;
    auto shape = product_of(s, a, b, c);
    if (added) shape.alignment = std::min(shape.alignment, common_alignment(added));
    shape.epilogue = lt_ending<S>::of(bias, act).epilogue;
    if (bias) shape.vector_alignment = common_alignment(bias);
    return lt_products::mine().run(shape, alpha, a, b, added ? S{1} : S{}, added ? added : c, c, const_cast<T*>(bias));
}

/// dw += dyᵀ x and db = column sums of dy, in one product; false where cuBLASLt cannot. Its second operand is dy, of
/// which it sums over what the product sums over: CUBLASLT_EPILOGUE_BGRADB.
template <class T, class W>
bool run_fused_gradients(const gemm_size& s, const T* dy, const T* x, W* dw, W* db) {
    auto shape = product_of(s, dy, x, dw);
    shape.epilogue = CUBLASLT_EPILOGUE_BGRADB;
    shape.vector_alignment = common_alignment(db);
    return lt_products::mine().run(shape, W{1}, dy, x, W{1}, dw, dw, db);
}

}  // namespace detail

/// c (m × n) = act(alpha op(a) op(b) + bias + added), bias (n) or null, added (m × n, rows as far apart as c's, not c
/// itself) or null; act: none, relu, gelu or gelu_tanh. c is not read.
/// Fused into the product are both sums, relu and, but for double, gelu_tanh, in float (double for double) and rounded
/// once; gelu is a pass of its own, for cuBLASLt's is the tanh form, and so is all that cuBLASLt has no algorithm for.
/// A fused relu may make 0 of a NaN: for inference.
template <class T>
void gemm_bias(cuda d, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, grid::sum_type<T> alpha, const T* a,
               index_t lda, const T* b, index_t ldb, T* c, index_t ldc, const T* bias,
               activation act = activation::none, const T* added = nullptr) {
    using S = grid::sum_type<T>;
    check_epilogue(act);
    const gemm_size s{trans_a, trans_b, m, n, k, lda, ldb, ldc};
    check(s);
    const double mn = static_cast<double>(m) * static_cast<double>(n);
    flop_counter::count((bias ? mn : 0) + (added ? mn : 0) + (act == activation::none ? 0 : mn),
                        static_cast<double>(sizeof(T)) * ((bias ? static_cast<double>(n) : 0) + (added ? mn : 0)));
    if (detail::run_fused(s, alpha, a, b, c, bias, act, added)) {
        detail::count_products<T, T>(m, n, k, 1, 1);
        return grid::finish_rows(d, m, n, static_cast<const T*>(nullptr), static_cast<const T*>(nullptr),
                                 detail::lt_ending<S>::of(bias, act).left, c, ldc);
    }
    gemm(d, trans_a, trans_b, m, n, k, alpha, a, lda, b, ldb, S{}, c, ldc);
    grid::finish_rows(d, m, n, bias, added, act, c, ldc);
}

/// dw (out × in) += dyᵀ x and, unless db is null, db (out) += column sums of dy; dy (rows, out), x (rows, in). W: T, or
/// float for short ones, whose products are then not rounded. The column sums are the product's, which reads dy anyway,
/// where cuBLASLt has that.
template <class T, class W>
void linear_gradients(cuda d, index_t rows, index_t out, index_t in, const T* dy, const T* x, W* dw, W* db) {
    if (db && rows > 0 && out > 0 && in > 0) {
        const gemm_size s{true, false, out, in, rows, out, in, in};
        tensor<W, cuda> sums({out}, memory_category::workspace);
        if (detail::run_fused_gradients(s, dy, x, dw, sums.data())) {
            const double n = static_cast<double>(rows) * static_cast<double>(out);
            detail::count_products<T, W>(out, in, rows, 1, 2);
            flop_counter::count(n, n * sizeof(T));
            return for_each(d, out, grid::add_rule<W, W>{}, db, sums.data());
        }
    }
    gemm(d, true, false, out, in, rows, W{1}, dy, out, x, in, W{1}, dw, in);
    if (db) column_sums(d, rows, out, dy, db, true);
}

/// c += weight · rowsᵀ rows: rows (count, stride ≥ width), c (width, width) symmetric with rows of ldc numbers.
/// Sums of rows of bfloat16 and float16 are float, in which their products are exact. c is symmetric to the bit, as on
/// the host: its upper triangle is copied.
template <class T>
void add_symmetric_product(cuda d, index_t count, index_t width, grid::sum_type<T> weight, const T* rows,
                           index_t stride, grid::sum_type<T>* c, index_t ldc) {
    gemm(d, true, false, width, width, count, weight, rows, stride, rows, stride, grid::sum_type<T>{1}, c, ldc);
    mirror_upper(d, width, c, ldc);
}

}  // namespace cairn
