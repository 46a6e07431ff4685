#pragma once
// Shared by the parts of attention.hpp: a tile's operands in the order in which the microkernel reads them, and
// products of them. Rows of q, k and v of a head lie far apart, at a stride that often maps them to few sets of the
// first-level cache: a tile of keys is copied together once and met by all strips of rows.

#include <cairn/core/tensor.hpp>
#include <cairn/device/attention_geometry.hpp>
#include <cairn/device/cpu/gemm_builtin.hpp>
#include <cairn/device/cpu/philox.hpp>
#include <cairn/device/cpu/simd_bfloat16.hpp>

#include <algorithm>
#include <utility>

namespace cairn::attention_detail {

inline constexpr index_t tile = 128;  // rows or keys of a task, whose keys are packed once
// Rows that go through score, softmax and sum together: whole register tiles, whole masks of dropout, little beyond the
// diagonal. Scores of a strip, 12 KiB of floats, stay in the first-level cache.
inline constexpr index_t strip = builtin::tile_rows == 14 ? 28 : 24;
static_assert(strip % 4 == 0 && tile % 16 == 0, "a mask is drawn for 4 rows and 16 keys at a time");

inline constexpr index_t pitch = tile + 16;  // from one row of scores to the next: hide() may write behind one

inline index_t tiles(index_t n) { return (n + tile - 1) / tile; }

inline index_t rounded(index_t n, index_t to) { return (n + to - 1) / to * to; }
/// Keys whose scores are made where n are wanted: whole packs.
template <class T>
index_t whole(index_t n) {
    return rounded(n, simd::lanes<T>);
}
/// Columns of copies of rows of d numbers: whole vectors, zeros behind the last.
template <class T>
index_t padded(index_t d) {
    return rounded(d, builtin::lanes<T>);
}

/// A matrix of m × k: number (i, j) at i · row + j · column.
template <class T>
struct left {
    const T* at;
    index_t row, column;
};
/// A matrix of k × n: rows `row` apart, each next panel of its columns `panel` further on.
template <class T>
struct right {
    const T* at;
    index_t row, panel = builtin::panel_columns<T>;
};

/// c (m × n) = a b, or added to c. n is a multiple of the lanes. Each number is one sum over k in order, on any tiles.
template <class T>
void multiply(index_t m, index_t n, index_t k, const left<T>& a, const right<T>& b, bool add, T* c, index_t ldc) {
    constexpr index_t width = builtin::panel_columns<T>;
    const builtin::tile_segment whole{0, 0, k};
    for (index_t j = 0, wide; j < n; j += wide) {
        const int vectors = n - j >= 2 * width ? builtin::tile_vectors<T>(m, n - j) : n - j >= width ? 2 : 1;
        wide = vectors * builtin::lanes<T>;
        builtin::tile_strip<T>(vectors, m,
                               {a.at, a.row, a.column, b.at + j / width * b.panel, b.row, b.panel, &whole, 1},
                               {c + j, ldc, wide, T{1}, add ? T{1} : T{}});
    }
}

/// scale · rows of d numbers, `stride` apart, to rows `to_stride` apart.
template <class S, class From, class To>
void copy_rows(index_t rows, index_t d, S scale, const From* from, index_t stride, To* to, index_t to_stride) {
    for (index_t r = 0; r < rows; ++r, from += stride, to += to_stride) {
        const simd::pack<S> factor(scale);
        simd::for_packs<S>(
            d, [=](index_t c, auto count) { simd::store(to + c, simd::load(from + c, count) * factor, count); });
    }
}
/// The same, zeros behind each row: padded() numbers apart.
template <class T, class S>
void pad_rows(index_t rows, index_t d, S scale, const T* from, index_t stride, S* to) {
    const index_t wide = padded<S>(d);
    copy_rows(rows, d, scale, from, stride, to, wide);
    for (index_t r = 0; r < rows && wide > d; ++r) std::fill(to + r * wide + d, to + (r + 1) * wide, S{});
}

/// Sets elements [first, columns) of a row of scores to a value, and some behind them.
template <class T>
void hide(index_t first, index_t columns, T* row, T value) {
    for (index_t c = first; c < columns; c += simd::lanes<T>) simd::store(row + c, simd::pack<T>(value));
}

/// Cuts a block of numbers into arrays, each at a multiple of a pack.
template <class T>
struct arrays {
    T* next;
    T* take(index_t n) { return std::exchange(next, next + whole<T>(n)); }
};

/// Sets rows [first, last) of a head to zero.
template <class T>
void clear(index_t first, index_t last, index_t d, T* row, index_t stride) {
    for (index_t r = first; r < last; ++r) std::fill_n(row + r * stride, d, T{});
}

/// Shared by all tiles of one call. T stores; tiles are of S, in which all is computed: float for bfloat16.
template <class T>
struct operands {
    using S = simd::arithmetic<T>;
    const attention_geometry& g;
    const T *q, *k, *v;
    index_t known(index_t n) const {
        if (!g.lengths) return g.length;
        const index_t valid = g.lengths[n];
        require(valid >= 0 && valid <= g.length, "attention: sequence ", n, " has length ", valid, ", not in [0, ",
                g.length, ']');
        return valid;
    }
    /// First element of position i of a head in q, k, v and their gradients; in y.
    index_t at(index_t n, index_t i, index_t h) const { return (n * g.length + i) * g.position() + h * g.head_dim; }
    index_t dense(index_t n, index_t i, index_t h) const { return ((n * g.length + i) * g.heads + h) * g.head_dim; }
    /// Keys of a tile that begins at j which row i attends to.
    index_t keys(index_t i, index_t j, index_t count) const {
        return g.causal ? std::clamp<index_t>(i + 1 - j, 0, count) : count;
    }
    /// Keys of such a tile which some row before row `end` attends to.
    index_t met(index_t end, index_t j, index_t count) const { return g.causal ? std::min(count, end - j) : count; }
    /// M of rows from i and keys from j on, rows `pitch` apart. i is a multiple of 4, j of 16.
    void draw(index_t n, index_t h, index_t i, index_t rows, index_t j, index_t count, S* to) const {
        random_stream random = g.random;
        if (g.step) random.step = *g.step;
        const philox_lanes lanes(random);
        const std::uint32_t threshold = g.threshold();
        const S factor = static_cast<S>(g.kept_factor());
        for (index_t r = 0; r < rows; r += 4)
            for (index_t c = 0; c < count; c += 16) {
                std::uint32_t bits[64];
                const std::uint64_t block = g.mask_block(n * g.heads + h, i + r, j + c);
                lanes.blocks(block, bits, 16);
                lanes.blocks(block + 8, bits + 8, 16);
                for (index_t w = 0; w < std::min<index_t>(4, rows - r); ++w)
                    for (index_t lane = 0; lane < 16; ++lane)
                        to[(r + w) * pitch + c + lane] = bits[w * 16 + lane] >= threshold ? factor : S{};
            }
    }

    /// Keys [j, j + count) of a head, scaled: padded rows of them, and panels of their transpose.
    void pack_keys(index_t n, index_t h, index_t j, index_t count, S* rows, S* panels) const {
        pad_rows(count, g.head_dim, static_cast<S>(g.factor()), k + at(n, j, h), g.position(), rows);
        builtin::pack_rows(true, 0, g.head_dim, g.head_dim, count, rows, padded<S>(g.head_dim), panels);
    }
    /// Such panels, or those of values.
    right<S> panels(const S* at) const {
        constexpr index_t width = builtin::panel_columns<S>;
        return {at, width, g.head_dim * width};
    }
};

}  // namespace cairn::attention_detail
