#pragma once
// Whole arrays of bfloat16 as floats, and back: for kernels that compute in float and for processors that have no
// instructions for bfloat16. Rows may lie apart.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/simd_bfloat16.hpp>

#include <algorithm>

namespace cairn {

/// Name of an element type in the keys of kernel choices.
template <class T>
inline constexpr const char* format_name = std::is_same_v<T, bfloat16> ? "bf16"
                                           : sizeof(T) == 8            ? "f64"
                                                                       : "f32";

namespace detail {

/// to = from, row by row, by all threads or by the one that calls.
template <class From, class To>
void convert_rows(bool threaded, index_t rows, index_t columns, const From* from, index_t from_stride, To* to,
                  index_t to_stride) {
    const index_t grain = std::max<index_t>(1, (index_t{1} << 14) / std::max<index_t>(columns, 1));
    const auto some = [=](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r)
            simd::for_packs<float>(columns,
                                   [in = from + r * from_stride, out = to + r * to_stride](index_t i, auto count) {
                                       simd::store(out + i, simd::load(in + i, count), count);
                                   });
    };
    if (rows == 0 || on_phantom_rank()) return;
    if (columns == from_stride && columns == to_stride) {  // one long row, cut anew
        constexpr index_t piece = index_t{1} << 14;
        const index_t all = rows * columns;
        const auto pieces = [=](index_t begin, index_t end) {
            simd::for_packs<float>(end - begin, [=](index_t i, auto count) {
                simd::store(to + begin + i, simd::load(from + begin + i, count), count);
            });
        };
        return threaded ? parallel_for(all, piece, pieces) : pieces(0, all);
    }
    threaded ? parallel_for(rows, grain, some) : some(0, rows);
}

}  // namespace detail

/// A copy in float of rows × columns numbers, rows `stride` apart, dense.
inline tensor<float> widened(bool threaded, index_t rows, index_t columns, const bfloat16* from, index_t stride) {
    tensor<float> copy({rows, columns}, memory_category::workspace);
    detail::convert_rows(threaded, rows, columns, from, stride, copy.data(), columns);
    return copy;
}
/// Of n numbers, by all threads.
inline tensor<float> widened(index_t n, const bfloat16* from) { return widened(true, 1, n, from, n); }

/// Rounds rows × columns floats.
inline void narrow(bool threaded, index_t rows, index_t columns, const float* from, index_t from_stride, bfloat16* to,
                   index_t to_stride) {
    detail::convert_rows(threaded, rows, columns, from, from_stride, to, to_stride);
}
inline void narrow(index_t n, const float* from, bfloat16* to) { narrow(true, 1, n, from, n, to, n); }

}  // namespace cairn
