#pragma once
// Small matrix products on operands that the Winograd transforms have already laid out, so nothing is packed twice.
//
//   C[r][j] += sum_k A(r, k) * B[j][k]          r: rows, j: column blocks of one vector each, k: the summed index
//
// One call of the inner kernel holds MR x NR vectors of C in registers; an element of A is broadcast, vectors of B are
// streamed. Registers: MR * NR sums + NR of B + 1 of A, so 14 x 2 for 32 registers and 6 x 2 for 16. Each step in k
// costs MR + NR loads for MR * NR fused operations.

#include <algorithm>
#include <cairn/device/cpu/winograd_simd.hpp>

namespace cairn::winograd {

/// How the summed index runs: `outer` times `middle` times `inner` steps; A moves by the strides (elements), while B is
/// contiguous in k (one vector a step) throughout. `ahead` is memory needed by later products, fetched a line a step
/// where A moves by lines; null for none.
struct summation {
    index_t outer = 1, outer_stride = 0;
    index_t middle = 1, middle_stride = 0;
    index_t inner = 1;
    const void* ahead = nullptr;
};

/// C[r][j] at c + j * c_block + r * lanes;  A(r, k) at a + r * RowStride + k * StepStride;  B[j][k] at b + j * b_block
/// + k * lanes. The sums are added to C if `accumulate`, else they overwrite it.
template <class T, int MR, int NR, index_t RowStride, index_t StepStride>
void gemm_registers(const summation& sum, const T* a, const T* b, index_t b_block, T* c, index_t c_block,
                    bool accumulate) {
    constexpr index_t w = lanes<T>;
    vec<T> acc[MR][NR] = {};
    // C is read last, and fetched meanwhile.
    for (int r = 0; r < MR; ++r)
        for (int j = 0; j < NR; ++j) __builtin_prefetch(c + j * c_block + r * w, 1);
    for (index_t o = 0; o < sum.outer; ++o)
        for (index_t m = 0; m < sum.middle; ++m) {
            const T* row = a + o * sum.outer_stride + m * sum.middle_stride;
#pragma GCC unroll 4
            for (index_t k = 0; k < sum.inner; ++k) {
                vec<T> bk[NR];
                for (int j = 0; j < NR; ++j) bk[j] = load(b + j * b_block);
                for (int r = 0; r < MR; ++r) {
                    const T element = row[r * RowStride];
                    for (int j = 0; j < NR; ++j) acc[r][j] += element * bk[j];
                }
                // Rows come in runs of MR lines, too short for the hardware to foresee: the next run, a line a step.
                if constexpr (StepStride == 1)
                    __builtin_prefetch(row + (MR + k) * RowStride - k);
                else
                    __builtin_prefetch(static_cast<const char*>(sum.ahead) + k * register_bytes, 0, 2);
                row += StepStride;
                b += w;
            }
        }
    if (accumulate)
        for (int r = 0; r < MR; ++r)
            for (int j = 0; j < NR; ++j) acc[r][j] += load(c + j * c_block + r * w);
    for (int r = 0; r < MR; ++r)
        for (int j = 0; j < NR; ++j) store(c + j * c_block + r * w, acc[r][j]);
}

/// Most rows of C held in registers beside `nr` column blocks.
constexpr int max_rows(int nr) { return std::min(14, (register_count - 1 - nr) / nr); }

namespace detail {
template <class T, int NR, index_t RowStride, index_t StepStride, int... R>
constexpr auto gemm_table(std::integer_sequence<int, R...>) {
    using kernel = void (*)(const summation&, const T*, const T*, index_t, T*, index_t, bool);
    return std::array<kernel, sizeof...(R)>{&gemm_registers<T, R + 1, NR, RowStride, StepStride>...};
}
}  // namespace detail

/// All `rows` x `blocks` of C, row groups of nearly equal height (so no group is small).
/// A's row r at a + r * RowStride.
template <class T, index_t RowStride, index_t StepStride>
void gemm_rows(const summation& sum, index_t rows, index_t blocks, const T* a, const T* b, index_t b_block, T* c,
               index_t c_block, bool accumulate) {
    constexpr int two = max_rows(2), one = max_rows(1);
    static constexpr auto pairs =
        detail::gemm_table<T, 2, RowStride, StepStride>(std::make_integer_sequence<int, two>{});
    static constexpr auto singles =
        detail::gemm_table<T, 1, RowStride, StepStride>(std::make_integer_sequence<int, one>{});
    for (index_t j = 0; j < blocks;) {
        const index_t nr = blocks - j >= 2 ? 2 : 1;
        const index_t groups = ceil_div(rows, nr == 2 ? two : one);
        for (index_t group = 0; group < groups; ++group) {
            const index_t r0 = rows * group / groups, mr = rows * (group + 1) / groups - r0;
            const auto kernel = (nr == 2 ? pairs[std::size_t(mr - 1)] : singles[std::size_t(mr - 1)]);
            kernel(sum, a + r0 * RowStride, b + j * b_block, b_block, c + j * c_block + r0 * lanes<T>, c_block,
                   accumulate);
        }
        j += nr;
    }
}

}  // namespace cairn::winograd
