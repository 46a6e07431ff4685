#pragma once
// Products of small matrices in the memory of a block, by all of its threads: what fused kernels with matrices inside
// are made of.
//   tile_product<TransA, TransB>(b, m, n, k, A, lda, B, ldb, add, C, ldc)      C = op(A) op(B) (+ C)
// m, n and k are multiples of 16, A and B are of T, C of float (double for double). bfloat16 goes to the tensor cores
// (wmma: m16n16k16, sums in float), other types to the threads' own multiply-adds, eight sums a thread at a time. For
// wmma tiles begin at multiples of 32 bytes, and their rows are a multiple of 16 bytes apart: tile_stride(). The host's
// processor, where the emulated GPU runs, takes plain loops for both.
// Nothing waits in it: sync() stands before, for A and B, and after, for C.

#include <cairn/core/bfloat16.hpp>
#include <cairn/device/grid/grid.hpp>

#include <type_traits>

#if defined(__CUDACC__)
#include <cuda_bf16.h>
#include <mma.h>
#endif

namespace cairn::grid {

/// Elements from row to row of a tile with n columns; neighbouring rows lie in different banks.
template <class T>
CAIRN_HD constexpr index_t tile_stride(index_t n) {
    return (n + 15) / 16 * 16 + 16 / static_cast<index_t>(sizeof(T));
}

#if defined(__CUDA_ARCH__)

/// Sixteen by sixteen elements of C by a warp.
template <bool TransA, bool TransB>
__device__ inline void warp_product(index_t k, const bfloat16* a, index_t lda, const bfloat16* b, index_t ldb, bool add,
                                    float* c, index_t ldc) {
    namespace wmma = nvcuda::wmma;
    using layout_a = std::conditional_t<TransA, wmma::col_major, wmma::row_major>;
    using layout_b = std::conditional_t<TransB, wmma::col_major, wmma::row_major>;
    wmma::fragment<wmma::matrix_a, 16, 16, 16, __nv_bfloat16, layout_a> of_a;
    wmma::fragment<wmma::matrix_b, 16, 16, 16, __nv_bfloat16, layout_b> of_b;
    wmma::fragment<wmma::accumulator, 16, 16, 16, float> sum;
    if (add)
        wmma::load_matrix_sync(sum, c, static_cast<unsigned>(ldc), wmma::mem_row_major);
    else
        wmma::fill_fragment(sum, 0.0f);
    for (index_t i = 0; i < k; i += 16) {
        wmma::load_matrix_sync(of_a, reinterpret_cast<const __nv_bfloat16*>(a + (TransA ? i * lda : i)),
                               static_cast<unsigned>(lda));
        wmma::load_matrix_sync(of_b, reinterpret_cast<const __nv_bfloat16*>(b + (TransB ? i : i * ldb)),
                               static_cast<unsigned>(ldb));
        wmma::mma_sync(sum, of_a, of_b, sum);
    }
    wmma::store_matrix_sync(c, sum, static_cast<unsigned>(ldc), wmma::mem_row_major);
}

#endif

/// See the top of the file.
template <bool TransA, bool TransB, class Block, class T, class S>
CAIRN_HD void tile_product(Block& block, index_t m, index_t n, index_t k, const T* a, index_t lda, const T* b,
                           index_t ldb, bool add, S* c, index_t ldc) {
#if defined(__CUDA_ARCH__)
    if constexpr (std::is_same_v<T, bfloat16>) {
        const index_t across = n / 16, tiles = m / 16 * across, warps = block.threads() / warp_threads;
        for (index_t t = block.thread() / warp_threads; t < tiles; t += warps) {
            const index_t i = t / across * 16, j = t % across * 16;
            warp_product<TransA, TransB>(k, a + (TransA ? i : i * lda), lda, b + (TransB ? j * ldb : j), ldb, add,
                                         c + i * ldc + j, ldc);
        }
        return;
    }
#endif
    // A thread has four rows and two columns, the columns n / 2 apart: neighbouring threads read neighbouring numbers.
    const index_t half = n / 2, tiles = m / 4 * half;
    for (index_t t = block.thread(); t < tiles; t += block.threads()) {
        const index_t i = t / half * 4, j = t % half;
        S sum[4][2];
        CAIRN_UNROLL
        for (int r = 0; r < 4; ++r)
            for (int s = 0; s < 2; ++s) sum[r][s] = add ? c[(i + r) * ldc + j + s * half] : S{};
        for (index_t l = 0; l < k; ++l) {
            S of_b[2];
            CAIRN_UNROLL
            for (int s = 0; s < 2; ++s) {
                const index_t column = j + s * half;
                of_b[s] = static_cast<S>(b[TransB ? column * ldb + l : l * ldb + column]);
            }
            CAIRN_UNROLL
            for (int r = 0; r < 4; ++r) {
                const S of_a = static_cast<S>(a[TransA ? l * lda + i + r : (i + r) * lda + l]);
                sum[r][0] += of_a * of_b[0];
                sum[r][1] += of_a * of_b[1];
            }
        }
        CAIRN_UNROLL
        for (int r = 0; r < 4; ++r)
            for (int s = 0; s < 2; ++s) c[(i + r) * ldc + j + s * half] = sum[r][s];
    }
}

}  // namespace cairn::grid
