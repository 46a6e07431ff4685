#pragma once
// Decompositions of several matrices of one size together, as GPUs want small ones: one of a few hundred rows keeps few
// of their processors busy, and the host waits for each. Devices without a library for that make them one after
// another.

#include <cairn/core/error.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <vector>

namespace cairn {

/// How many matrices of n rows are decomposed together: on the host one, since its threads take one each.
constexpr index_t matrices_at_once(cpu, index_t) { return 1; }

/// On a GPU those up to 512 rows, where the batched functions of cuSOLVER and cuBLAS are faster than the others one
/// after another by published measurements (7 times for potrfBatched of 16 matrices of 512 rows on an L40S; the limit
/// in PyTorch's LU); no more than a single matrix of 4,096 rows has elements, and 256, since cuSOLVER's workspace for
/// eigenvectors is 0.3 MB a matrix, however small that is. Not measured here.
template <Device D>
constexpr index_t matrices_at_once(D, index_t n) {
    return n > 512 ? 1 : std::clamp<index_t>((index_t{1} << 24) / std::max<index_t>(n * n, 1), 1, 256);
}

/// What became of `count` matrices (n, n).
template <class T, Device D>
struct matrix_batch {
    tensor<T, D> matrices;   // (count, n, n)
    tensor<T, D> values;     // (count, n), or empty
    std::vector<bool> made;  // else what is there has no meaning
};

/// Eigenvalues in ascending order and eigenvectors as columns of each of finite symmetric matrices (count, n, n), which
/// are used up.
template <class T, Device D>
matrix_batch<T, D> eigh_batched(D d, tensor<T, D> a) {
    const index_t count = a.extent(0), n = a.extent(1);
    matrix_batch<T, D> all{std::move(a), tensor<T, D>({count, n}, memory_category::workspace), {}};
    for (index_t i = 0; i < count; ++i) try {
            const tensor<T, D> one = all.matrices.slice(i * n * n, {n, n});
            const auto e = eigh(d, one);
            D::copy_within(all.matrices.data() + i * n * n, e.vectors.data(), one.bytes());
            D::copy_within(all.values.data() + i * n, e.values.data(), e.values.bytes());
            all.made.push_back(true);
        } catch (const error&) {
            all.made.push_back(false);
        }
    return all;
}

/// The inverse of each of finite symmetric matrices (count, n, n), which are used up, symmetric to the bit; of those
/// that are positive definite.
template <class T, Device D>
matrix_batch<T, D> inverse_of_positive_batched(D d, tensor<T, D> a) {
    const index_t n = a.extent(1);
    matrix_batch<T, D> all{std::move(a), {}, {}};
    for (index_t i = 0; i < all.matrices.extent(0); ++i) try {
            const tensor<T, D> inverse = inverse_of_positive(d, all.matrices.slice(i * n * n, {n, n}));
            D::copy_within(all.matrices.data() + i * n * n, inverse.data(), inverse.bytes());
            all.made.push_back(true);
        } catch (const error&) {
            all.made.push_back(false);
        }
    return all;
}

}  // namespace cairn
