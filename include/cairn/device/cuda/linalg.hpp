#pragma once
// Dense linear algebra on the GPU through cuSOLVER, float and double: same names and results as device/cpu/linalg.hpp,
// but tensors stay on the GPU. Symmetric matrices are their own transposes, so column-major and row-major are one. Each
// call waits, for whether all elements are finite and for cuSOLVER's word on whether it succeeded, and so cannot be
// recorded (core/captured_graph.hpp). The one place that includes cuSOLVER.

#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/grid/matrices.hpp>

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
    thread_local cusolverDnHandle_t mine = [] {
        cusolverDnHandle_t h = nullptr;
        check(cusolverDnCreate(&h), "starting");
        check(cusolverDnSetStream(h, cuda::stream()), "choosing a stream");
        return h;
    }();
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
    const cudaDataType_t type = detail::cuda_type<T>();
    std::size_t on_gpu = 0, on_host = 0;
    cusolverDnParams_t made = nullptr;
    detail::check(cusolverDnCreateParams(&made), "parameters");
    const std::shared_ptr<std::remove_pointer_t<cusolverDnParams_t>> owner(
        made, [](cusolverDnParams_t p) { cusolverDnDestroyParams(p); });
    cusolverDnParams_t parameters = owner.get();
    detail::check(
        cusolverDnXsyevd_bufferSize(detail::solver(), parameters, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n,
                                    type, vectors.data(), n, type, values.data(), type, &on_gpu, &on_host),
        "eigh of ", n, " x ", n);
    gpu_workspace work(on_gpu);
    std::vector<char> host_work(on_host);
    detail::solver_info info;
    detail::check(cusolverDnXsyevd(detail::solver(), parameters, CUSOLVER_EIG_MODE_VECTOR, CUBLAS_FILL_MODE_LOWER, n,
                                   type, vectors.data(), n, type, values.data(), type, work.data(), on_gpu,
                                   host_work.data(), on_host, info.data()),
                  "eigh of ", n, " x ", n);
    const int failed = info.read();
    require(failed == 0, "eigh: no convergence for a matrix (", n, ", ", n, "), cuSOLVER says ", failed);
    tensor<T, cuda> columns({n, n}, memory_category::workspace);  // cuSOLVER's columns lie one behind the other
    grid::transpose(cuda{}, n, vectors.data(), columns.data());
    return {std::move(values), std::move(columns)};
}

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

}  // namespace cairn
