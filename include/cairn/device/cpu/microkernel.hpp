#pragma once
// The inner loop of every portable matrix product and convolution: a tile of sums held in registers.
//
//   for each segment s, for each i < s.k:  sum[r][:] += a[s.a + r · a_row + i · a_k] · b[s.b + i · b_k + :]
//   c[r · ldc + :] = alpha sum[r][:] + beta c[r · ldc + :]
//
// Rows numbers of A are broadcast against Vecs vectors of B, which lie side by side. A product of matrices is one
// segment; a convolution has one for each line of its kernel, so that patches of the input never need to be copied
// together.
// Vectors are as wide as the target has them: tile_rows × 2 sums, 2 of B and 1 of A fill its registers.

#include <cairn/device/cpu/winograd_simd.hpp>

#include <algorithm>
#include <utility>

namespace cairn::builtin {

using winograd::lanes, winograd::load, winograd::store, winograd::vec;
inline constexpr int vector_bytes = winograd::register_bytes;
inline constexpr int tile_rows = winograd::register_count == 32 ? 14 : 6;

/// Columns of a panel, the unit in which matrices are packed: two vectors.
template <class T>
inline constexpr index_t panel_columns = 2 * lanes<T>;

/// A stretch of products: offsets into a and b, and how many.
struct tile_segment {
    index_t a, b, k;
};

/// The sums of a tile. Vectors 2 and 3 of four start b_next after vectors 0 and 1, in the next panel.
template <class T>
struct tile_source {
    const T* a;
    index_t a_row, a_k;
    const T* b;
    index_t b_k, b_next;
    const tile_segment* segments;
    index_t count;
};

/// Where a tile goes: c = alpha sum + beta c + start, its first `columns` columns. start (columns) may be null.
template <class T>
struct tile_target {
    T* c;
    index_t ldc;
    index_t columns;
    T alpha, beta;
    const T* start = nullptr;
};

/// The general end of a tile: any alpha and beta, any number of columns. `part` holds its sums, row after row, `stride`
/// apart.
template <class T>
void finish_tile(int rows, index_t stride, const T* part, const tile_target<T>& to) {
    for (int r = 0; r < rows; ++r)
        for (index_t j = 0; j < to.columns; j += lanes<T>) {
            const index_t count = std::min(lanes<T>, to.columns - j);
            T* const c = to.c + r * to.ldc + j;
            vec<T> value = to.alpha * load(part + r * stride + j);
            if (to.beta != T{}) value += to.beta * load(c, count);
            if (to.start) value += load(to.start + j, count);
            store(c, value, count);
        }
}

template <class T, int Rows, int Vecs>
[[gnu::noinline]] void microkernel(const tile_source<T>& from, const tile_target<T>& to) {
    using vector = vec<T>;
    constexpr index_t width = lanes<T>;
    // The common ends, c = sum, c += sum and c = sum + start over full columns, begin with the old content.
    const bool plain =
        to.columns == Vecs * width && to.alpha == T{1} && (to.beta == T{} || (to.beta == T{1} && !to.start));
    const T* const begin = !plain ? nullptr : to.beta == T{1} ? to.c : to.start;
    const index_t begin_row = begin == to.start ? 0 : to.ldc;
    vector sum[Rows][Vecs];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < Vecs; ++v) sum[r][v] = begin ? load(begin + r * begin_row + v * width) : vector{};
    const index_t a_row = from.a_row, a_k = from.a_k, b_k = from.b_k, b_next = from.b_next;
    for (const tile_segment *s = from.segments, *end = s + from.count; s < end; ++s) {
        // One pointer for three rows: row 3q + 1 and 3q + 2 are reached by a scaled index, and all of it stays in
        // registers.
        constexpr int pointers = (Rows + 2) / 3;
        const T* a[pointers];
#pragma GCC unroll 5
        for (int q = 0; q < pointers; ++q) a[q] = from.a + s->a + 3 * q * a_row;
        const T* b = from.b + s->b;
        // Not unrolled: clang keeps a sum of the unrolled loop in memory, at half the speed where registers are 16.
#pragma GCC unroll 1
        for (index_t i = 0; i < s->k; ++i) {
            vector row[Vecs];
#pragma GCC unroll 4
            for (int v = 0; v < Vecs; ++v) row[v] = load(b + v % 2 * width + (v >= 2 ? b_next : 0));
#pragma GCC unroll 16
            for (int r = 0; r < Rows; ++r) {
                const T number = a[r / 3][r % 3 * a_row];
#pragma GCC unroll 4
                for (int v = 0; v < Vecs; ++v) sum[r][v] += number * row[v];
            }
#pragma GCC unroll 5
            for (int q = 0; q < pointers; ++q) a[q] += a_k;
            b += b_k;
        }
    }
    if (plain) {
#pragma GCC unroll 16
        for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
            for (int v = 0; v < Vecs; ++v) store(to.c + r * to.ldc + v * width, sum[r][v]);
        return;
    }
    T part[Rows * Vecs * width];
#pragma GCC unroll 16
    for (int r = 0; r < Rows; ++r)
#pragma GCC unroll 4
        for (int v = 0; v < Vecs; ++v) store(part + (r * Vecs + v) * width, sum[r][v]);
    finish_tile(Rows, Vecs * width, part, to);
}

/// Rows that the next tile takes of `left`, at most `most`, so that no thin tile remains: 32 rows are 14 + 10 + 8, 16
/// are 8 + 8.
/// Above 8 rows, tiles have an even number.
inline int next_rows(index_t left, int most) {
    if (left >= 2 * most) return most;
    if (left > most) return static_cast<int>((left / 2 + 1) / 2 * 2);
    return static_cast<int>(left > 8 && left % 2 ? (left + 1) / 2 : left);
}

/// A strip of `rows` rows, Vecs vectors wide, cut into tiles.
template <class T, int Vecs>
void tile_strip(index_t rows, tile_source<T> from, tile_target<T> to) {
    constexpr int most = Vecs > 2 ? tile_rows / 2 : tile_rows;
    while (rows > 0) {
        const int now = next_rows(rows, most);
        const auto if_now = [&]<int Rows>(std::integral_constant<int, Rows>) {
            if constexpr (Rows <= most)
                if (now == Rows) microkernel<T, Rows, Vecs>(from, to);
        };
        [&]<int... Rows>(std::integer_sequence<int, Rows...>) { (if_now(std::integral_constant<int, Rows>{}), ...); }
        (std::integer_sequence<int, 14, 12, 10, 8, 7, 6, 5, 4, 3, 2, 1>{});
        rows -= now;
        if (from.a) from.a += now * from.a_row;
        to.c += now * to.ldc;
    }
}

/// Vectors that a tile over `rows` rows should have, for `columns` columns still to do.
template <class T>
int tile_vectors(index_t rows, index_t columns) {
    if (columns <= lanes<T>) return 1;
    return rows <= tile_rows / 2 && columns > panel_columns<T> ? 4 : 2;
}

/// As tile_strip, with 1, 2 or 4 vectors.
template <class T>
void tile_strip(int vectors, index_t rows, const tile_source<T>& from, const tile_target<T>& to) {
    if (vectors == 1)
        tile_strip<T, 1>(rows, from, to);
    else if (vectors == 2)
        tile_strip<T, 2>(rows, from, to);
    else
        tile_strip<T, 4>(rows, from, to);
}

}  // namespace cairn::builtin
