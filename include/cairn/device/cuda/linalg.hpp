#pragma once
// Dense linear algebra on the GPU through cuSOLVER, float and double: same names and results as device/cpu/linalg.hpp
// and device/matrix_batches.hpp, but tensors stay on the GPU. Symmetric matrices are their own transposes, so
// column-major and row-major are one. Each call waits, for whether all elements are finite (of one matrix; a batch is)
// and for cuSOLVER's word on whether it succeeded, and so cannot be recorded (core/captured_graph.hpp). The one place
// that includes cuSOLVER.

#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/grid/curvature.hpp>
#include <cairn/device/grid/matrices.hpp>
#include <cairn/device/matrix_batches.hpp>

#include <cusolverDn.h>

#include <algorithm>
#include <memory>
#include <type_traits>
#include <vector>

namespace cairn {

namespace detail {

template <class... What>
void check(cusolverStatus_t status, const What&... what) {
    require(status == CUSOLVER_STATUS_SUCCESS, "cuSOLVER: ", what..., " failed with status ", static_cast<int>(status));
}

inline cusolverDnHandle_t solver() {
    thread_local const auto mine = cuda::library_handle<cusolverDnHandle_t>(
        cusolverDnCreate, cusolverDnSetStream, [](cusolverStatus_t s, const char* what) { check(s, what); });
    return mine;
}

/// Status that a call leaves: 0 for success.
class solver_info {
public:
    solver_info() : on_gpu_({1}, memory_category::workspace) {}
    int* data() { return on_gpu_.data(); }
    int read() {
        int value = 0;
        cuda::copy_to_host(&value, on_gpu_.data(), sizeof value);
        return value;
    }

private:
    tensor<int, cuda> on_gpu_;
};

/// Eigenvectors of symmetric matrices of n rows in their place, and eigenvalues; cuSOLVER's word on each. `count`: none
/// for one matrix, as its functions want it.
template <class T, class Size, class Solve, class... Count>
tensor<int> eigen_in_place(Size size, Solve solve, index_t n, T* matrices, T* values, Count... count) {
    const cudaDataType_t type = cuda_type<T>();
    std::size_t on_gpu = 0, on_host = 0;
    cusolverDnParams_t made = nullptr;
    check(cusolverDnCreateParams(&made), "parameters");
    const std::shared_ptr<std::remove_pointer_t<cusolverDnParams_t>> parameters(
        made, [](cusolverDnParams_t p) { cusolverDnDestroyParams(p); });
    check(size(solver(), made, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, type, matrices, n, type, values,
               type, &on_gpu, &on_host, count...),
          "eigh of ", n, " x ", n);
    gpu_workspace work(on_gpu);
    std::vector<char> host_work(on_host);
    tensor<int, cuda> info({std::max({index_t{1}, count...})}, memory_category::workspace);
    check(solve(solver(), made, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n, type, matrices, n, type, values,
                type, work.data(), on_gpu, host_work.data(), on_host, info.data(), count...),
          "eigh of ", n, " x ", n);
    return info.on_host();  // waits, before the workspaces go back
}

/// Whether each word is 0: success.
inline std::vector<bool> successes(const tensor<int>& info) {
    std::vector<bool> all;
    for (const int said : info.span()) all.push_back(said == 0);
    return all;
}

}  // namespace detail

/// Eigenvalues in ascending order (n) and eigenvectors as columns (n, n), on the GPU.
template <class T>
struct gpu_eigen_decomposition {
    tensor<T, cuda> values, vectors;
};

/// Of a symmetric matrix (n, n), by divide and conquer. Throws if it is not square, not finite, or does not converge.
template <class T>
gpu_eigen_decomposition<T> eigh(cuda, const tensor<T, cuda>& a) {
    const index_t n = detail::order_of(a, "eigh");
    grid::require_finite(cuda{}, a, "eigh");
    tensor<T, cuda> vectors = a.clone(memory_category::workspace), values({n}, memory_category::workspace);
    const int failed =
        detail::eigen_in_place(cusolverDnXsyevd_bufferSize, cusolverDnXsyevd, n, vectors.data(), values.data())[0];
    require(failed == 0, "eigh: no convergence for a matrix (", n, ", ", n, "), cuSOLVER says ", failed);
    tensor<T, cuda> columns({n, n}, memory_category::workspace);  // cuSOLVER's columns lie one behind the other
    grid::transpose(cuda{}, n, vectors.data(), columns.data());
    return {std::move(values), std::move(columns)};
}

#if CUSOLVER_VERSION >= 11701  // CUDA 12.6.2
template <class T>
matrix_batch<T, cuda> eigh_batched(cuda, tensor<T, cuda> a) {
    const index_t count = a.extent(0), n = a.extent(1);
    tensor<T, cuda> columns(a.shape(), memory_category::workspace), values({count, n}, memory_category::workspace);
    const tensor<int> info = detail::eigen_in_place(cusolverDnXsyevBatched_bufferSize, cusolverDnXsyevBatched, n,
                                                    a.data(), values.data(), count);
    for (index_t i = 0; i < count; ++i) grid::transpose(cuda{}, n, a.data() + i * n * n, columns.data() + i * n * n);
    return {std::move(columns), std::move(values), detail::successes(info)};
}
#endif

/// Q (n, n) of A = Q R for a square A, by Householder's reflections; of columns that depend on others, any that
/// complete the basis. Throws if A is not square or not finite.
template <class T>
tensor<T, cuda> orthonormal_columns(cuda, const tensor<T, cuda>& a) {
    const index_t n = detail::order_of(a, "orthonormal columns");
    grid::require_finite(cuda{}, a, "orthonormal columns");
    tensor<T, cuda> columns({n, n}, memory_category::workspace), tau({n}, memory_category::workspace),
        q({n, n}, memory_category::workspace);
    grid::transpose(cuda{}, n, a.data(), columns.data());  // cuSOLVER's columns lie one behind the other
    const auto order = static_cast<int>(n);
    int size = 0, more = 0;
    detail::solver_info info;
    const auto pieces = [&](auto geqrf_size, auto orgqr_size, auto geqrf, auto orgqr) {
        const auto check = [&](cusolverStatus_t status) { detail::check(status, "qr of ", n, " x ", n); };
        check(geqrf_size(detail::solver(), order, order, columns.data(), order, &size));
        check(orgqr_size(detail::solver(), order, order, order, columns.data(), order, tau.data(), &more));
        size = std::max({size, more, 1});
        tensor<T, cuda> work({size}, memory_category::workspace);
        check(geqrf(detail::solver(), order, order, columns.data(), order, tau.data(), work.data(), size, info.data()));
        int failed = info.read();
        require(failed == 0, "qr: of a matrix ", a.shape(), ", cuSOLVER says ", failed);
        check(orgqr(detail::solver(), order, order, order, columns.data(), order, tau.data(), work.data(), size,
                    info.data()));
        failed = info.read();  // waits, before the workspace goes back
        require(failed == 0, "qr: of a matrix ", a.shape(), ", cuSOLVER says ", failed);
    };
    if constexpr (std::is_same_v<T, double>)
        pieces(cusolverDnDgeqrf_bufferSize, cusolverDnDorgqr_bufferSize, cusolverDnDgeqrf, cusolverDnDorgqr);
    else
        pieces(cusolverDnSgeqrf_bufferSize, cusolverDnSorgqr_bufferSize, cusolverDnSgeqrf, cusolverDnSorgqr);
    grid::transpose(cuda{}, n, columns.data(), q.data());
    return q;
}

/// The inverse of a symmetric positive definite matrix (n, n), symmetric to the bit. Throws if it is not square, not
/// finite or not positive definite.
template <class T>
tensor<T, cuda> inverse_of_positive(cuda, const tensor<T, cuda>& a) {
    const index_t n = detail::order_of(a, "inverse");
    grid::require_finite(cuda{}, a, "inverse");
    tensor<T, cuda> inverse = a.clone(memory_category::workspace);
    const auto order = static_cast<int>(n);
    int size = 0, more = 0;
    detail::solver_info info;
    const auto pieces = [&](auto potrf_size, auto potri_size, auto potrf, auto potri) {
        detail::check(potrf_size(detail::solver(), CUBLAS_FILL_MODE_LOWER, order, inverse.data(), order, &size),
                      "inverse");
        detail::check(potri_size(detail::solver(), CUBLAS_FILL_MODE_LOWER, order, inverse.data(), order, &more),
                      "inverse");
        size = std::max(size, more);
        tensor<T, cuda> work({std::max(size, 1)}, memory_category::workspace);
        detail::check(potrf(detail::solver(), CUBLAS_FILL_MODE_LOWER, order, inverse.data(), order, work.data(), size,
                            info.data()),
                      "inverse");
        const int failed = info.read();
        require(failed == 0, "inverse: the matrix ", a.shape(), " is not positive definite (cuSOLVER says ", failed,
                "); add a multiple of the identity");
        detail::check(potri(detail::solver(), CUBLAS_FILL_MODE_LOWER, order, inverse.data(), order, work.data(), size,
                            info.data()),
                      "inverse");
        cuda::wait();  // before the workspace goes back
    };
    if constexpr (std::is_same_v<T, double>)
        pieces(cusolverDnDpotrf_bufferSize, cusolverDnDpotri_bufferSize, cusolverDnDpotrf, cusolverDnDpotri);
    else
        pieces(cusolverDnSpotrf_bufferSize, cusolverDnSpotri_bufferSize, cusolverDnSpotrf, cusolverDnSpotri);
    mirror_upper(cuda{}, n, inverse.data(), n);  // cuSOLVER's lower triangle is the upper one of rows
    return inverse;
}

/// A = L Lᵀ, L Y = I, Lᵀ X = Y of each: with one right-hand side for potrsBatched and no batched potri, by cuBLAS.
template <class T>
matrix_batch<T, cuda> inverse_of_positive_batched(cuda, tensor<T, cuda> a) {
    const index_t count = a.extent(0), n = a.extent(1);
    const auto order = static_cast<int>(n), number = static_cast<int>(count);
    tensor<T, cuda> inverses = tensor<T, cuda>::zeros(a.shape(), memory_category::workspace);
    tensor<T*> places({2, count}, memory_category::workspace);
    for (index_t i = 0; i < count; ++i) {
        places(0, i) = a.data() + i * n * n;
        places(1, i) = inverses.data() + i * n * n;
        add_to_diagonal(cuda{}, n, n + 1, T{1}, places(1, i));
    }
    auto on_gpu = tensor<T*, cuda>::copy_of(places, memory_category::workspace);
    T **const lower = on_gpu.data(), **const inverse = lower + count;
    tensor<int, cuda> info({count}, memory_category::workspace);
    const auto pieces = [&](auto potrf, auto trsm) {
        detail::check(potrf(detail::solver(), CUBLAS_FILL_MODE_LOWER, order, lower, order, info.data(), number),
                      "inverses");
        const auto solve = [&](cublasOperation_t transposed) {
            const T one{1};
            detail::check(trsm(detail::triangular_solver(), CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, transposed,
                               CUBLAS_DIAG_NON_UNIT, order, order, &one, lower, order, inverse, order, number),
                          "inverses");
        };
        solve(CUBLAS_OP_N);
        solve(CUBLAS_OP_T);
    };
    if constexpr (std::is_same_v<T, double>)
        pieces(cusolverDnDpotrfBatched, cublasDtrsmBatched);
    else
        pieces(cusolverDnSpotrfBatched, cublasStrsmBatched);
    for (index_t i = 0; i < count; ++i) mirror_upper(cuda{}, n, places(1, i), n);
    return {std::move(inverses), {}, detail::successes(info.on_host())};  // waits, before the workspaces go back
}

}  // namespace cairn
