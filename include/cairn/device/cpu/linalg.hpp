#pragma once
// Dense linear algebra on small and medium matrices (Kronecker factors, whitening, tests), float and double, through
// xtensor-blas, that is LAPACK. The one place that includes xtensor-blas. Matrices are row-major tensors (rows,
// columns); arguments are not changed.
//   eigh      A = V diag(w) Vᵀ    xSYEVD    A symmetric, lower triangle read
//   cholesky  A = L Lᵀ            xPOTRF    A symmetric positive definite, lower triangle read
//   inverse   A⁻¹                 xPOTRF, xPOTRI    A symmetric positive definite
//   svd       A = U diag(s) Vᵀ    xGESDD
//   orthonormal_columns    Q of A = Q R    xGEQRF, xORGQR
//   solve     A X = B             xGESV
// One algorithm for each, not the fastest by measurement: eigenvectors of equal eigenvalues are any that complete the
// space, and decompositions that run side by side would be measured in each other's way.
// Tested by multiplying back, on matrices of known spectrum, and against hand-computed 2 × 2 cases.

#include <cairn/core/compiled.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/blas_threads.hpp>
#include <cairn/device/cpu/symmetric.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/matrix_checks.hpp>

// Half of what a file that includes Cairn has to read. With cairn::compiled one file reads it for all, and others see
// declarations alone.
#if !defined(CAIRN_COMPILED) || defined(CAIRN_COMPILED_linalg)
#define CAIRN_DEFINES_LINALG
#include <cairn/core/xt.hpp>

#include <xtensor-blas/xlinalg.hpp>
#endif

#include <algorithm>
#include <exception>

namespace cairn {

/// Eigenvalues in ascending order (n) and eigenvectors as columns (n, n).
template <class T>
struct eigen_decomposition {
    tensor<T> values;   // (n)
    tensor<T> vectors;  // (n, n)
};

/// Eigenvalues and eigenvectors of a symmetric matrix (n, n). Throws if it is not square, not finite, or does not
/// converge.
template <class T>
eigen_decomposition<T> eigh(cpu, const tensor<T>& a);

/// Lower triangular L (n, n) with L Lᵀ = A. Throws if A is not square, not finite or not positive definite.
template <class T>
tensor<T> cholesky(cpu, const tensor<T>& a);

/// The inverse of a symmetric positive definite matrix (n, n), symmetric to the bit. Throws if it is not square, not
/// finite or not positive definite.
template <class T>
tensor<T> inverse_of_positive(cpu, const tensor<T>& a);

/// Q (n, n) of A = Q R for a square A; of columns that depend on others, any that complete the basis. Throws if A is
/// not finite.
template <class T>
tensor<T> orthonormal_columns(cpu, const tensor<T>& a);

/// Thin singular value decomposition of (m, n) with k = min(m, n): singular values in descending order.
template <class T>
struct singular_decomposition {
    tensor<T> u;       // (m, k)
    tensor<T> values;  // (k)
    tensor<T> vt;      // (k, n)
};

/// A = U diag(values) Vᵀ. Throws if A is not finite or does not converge.
template <class T>
singular_decomposition<T> svd(cpu, const tensor<T>& a);

/// X with A X = B; B is (n) or (n, columns), X has its shape. Throws if A is not square, not finite or singular, or if
/// B does not fit.
template <class T>
tensor<T> solve(cpu, const tensor<T>& a, const tensor<T>& b);

#ifdef CAIRN_DEFINES_LINALG

namespace detail {

template <class T>
xt::xtensor<T, 2> matrix_of(const tensor<T>& a, const char* what) {
    require(a.rank() == 2, what, ": a matrix (rows, columns) is needed, got shape ", a.shape());
    require_finite(a, what);
    return xt_view(a);
}

template <class T>
xt::xtensor<T, 2> square_matrix_of(const tensor<T>& a, const char* what) {
    order_of(a, what);
    return matrix_of(a, what);
}

/// The announcement of a decomposition that takes `factor` · rows · columns² operations.
template <class T>
kernel_call call_of(const char* kind, const tensor<T>& a, double factor) {
    const index_t rows = a.extent(0), columns = a.rank() == 2 ? a.extent(1) : 1;
    const double least = static_cast<double>(std::min(rows, columns));
    return kernel_call(kind, format_name<T>, factor * static_cast<double>(rows * columns) * least,
                       2 * static_cast<double>(a.bytes()), {rows, columns});
}

/// Runs a LAPACK call; its failure becomes `message`.
template <class Call, class... Message>
auto lapack_call(Call&& call, const Message&... message) {
    match_blas_threads();
    try {
        return call();
    } catch (const std::exception& e) {
        fail(message..., " (", e.what(), ')');
    }
}

}  // namespace detail

template <class T>
eigen_decomposition<T> eigh(cpu, const tensor<T>& a) {
    detail::order_of(a, "eigh");
    const kernel_call call = detail::call_of<T>("eigenvectors", a, 9);
    if (on_phantom_rank()) return {tensor<T>({a.extent(0)}), tensor<T>(a.shape())};
    const auto m = detail::square_matrix_of(a, "eigh");
    const auto result =
        detail::lapack_call([&] { return xt::linalg::eigh(m); }, "eigh: no convergence for a matrix ", a.shape());
    return {tensor_from(std::get<0>(result)), tensor_from(std::get<1>(result))};
}

template <class T>
tensor<T> cholesky(cpu, const tensor<T>& a) {
    detail::order_of(a, "cholesky");
    const kernel_call call = detail::call_of<T>("cholesky", a, 1.0 / 3);
    if (on_phantom_rank()) return tensor<T>(a.shape());
    const auto m = detail::square_matrix_of(a, "cholesky");
    return tensor_from(detail::lapack_call([&] { return xt::linalg::cholesky(m); }, "cholesky: the matrix ", a.shape(),
                                           " is not positive definite; add a multiple of the identity"));
}

template <class T>
tensor<T> inverse_of_positive(cpu, const tensor<T>& a) {
    const auto n = static_cast<xt::blas_index_t>(detail::order_of(a, "inverse"));
    const kernel_call call = detail::call_of<T>("inverse", a, 1);
    if (on_phantom_rank()) return a.clone(memory_category::workspace);
    detail::require_finite(a, "inverse");
    match_blas_threads();
    tensor<T> inverse = a.clone(memory_category::workspace);
    xt::blas_index_t info = cxxlapack::potrf<xt::blas_index_t>('L', n, inverse.data(), n);
    if (info == 0) info = cxxlapack::potri<xt::blas_index_t>('L', n, inverse.data(), n);
    require(info == 0, "inverse: the matrix ", a.shape(), " is not positive definite (LAPACK says ", info,
            "); add a multiple of the identity");
    mirror_upper(cpu{}, n, inverse.data(), n);  // LAPACK's lower triangle is the upper one of rows
    return inverse;
}

template <class T>
tensor<T> orthonormal_columns(cpu, const tensor<T>& a) {
    detail::order_of(a, "orthonormal columns");
    const kernel_call call = detail::call_of<T>("orthonormal columns", a, 8.0 / 3);
    if (on_phantom_rank()) return tensor<T>(a.shape());
    const auto m = detail::square_matrix_of(a, "orthonormal columns");
    return tensor_from(
        std::get<0>(detail::lapack_call([&] { return xt::linalg::qr(m); }, "qr: of a matrix ", a.shape())));
}

template <class T>
singular_decomposition<T> svd(cpu, const tensor<T>& a) {
    const auto m = detail::matrix_of(a, "svd");
    require(a.size() > 0, "svd: the matrix ", a.shape(), " has no elements");
    const kernel_call call = detail::call_of<T>("singular values", a, 22);
    const auto result =
        detail::lapack_call([&] { return xt::linalg::svd(m, false); }, "svd: no convergence for a matrix ", a.shape());
    return {tensor_from(std::get<0>(result)), tensor_from(std::get<1>(result)), tensor_from(std::get<2>(result))};
}

template <class T>
tensor<T> solve(cpu, const tensor<T>& a, const tensor<T>& b) {
    const kernel_call call = detail::call_of<T>("solution", a, 2.0 / 3);
    const auto m = detail::square_matrix_of(a, "solve");
    require((b.rank() == 1 || b.rank() == 2) && b.extent(0) == a.extent(0), "solve: right-hand side ", b.shape(),
            " for a matrix ", a.shape());
    const auto columns = detail::matrix_of(b.reshaped({b.extent(0), b.size() / b.extent(0)}), "solve: right-hand side");
    tensor<T> x = tensor_from(detail::lapack_call([&] { return xt::linalg::solve(m, columns); }, "solve: the matrix ",
                                                  a.shape(), " is singular"));
    return x.reshaped(b.shape());
}

#define CAIRN_COMPILED_LINALG(T)                                                      \
    CAIRN_COMPILED_ONCE(linalg, eigen_decomposition<T> eigh(cpu, const tensor<T>&))   \
    CAIRN_COMPILED_ONCE(linalg, tensor<T> cholesky(cpu, const tensor<T>&))            \
    CAIRN_COMPILED_ONCE(linalg, tensor<T> inverse_of_positive(cpu, const tensor<T>&)) \
    CAIRN_COMPILED_ONCE(linalg, tensor<T> orthonormal_columns(cpu, const tensor<T>&)) \
    CAIRN_COMPILED_ONCE(linalg, singular_decomposition<T> svd(cpu, const tensor<T>&)) \
    CAIRN_COMPILED_ONCE(linalg, tensor<T> solve(cpu, const tensor<T>&, const tensor<T>&))
CAIRN_COMPILED_LINALG(float)
CAIRN_COMPILED_LINALG(double)

#endif

}  // namespace cairn
