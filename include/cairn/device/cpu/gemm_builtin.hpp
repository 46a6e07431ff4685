#pragma once
// GEMM in portable C++, after the blocking of Goto and van de Geijn (ACM TOMS 34, 2008), with one level less:
//
//   for each block of k_block products
//       pack op(B) into panels of `columns` columns, zeros behind the last
//       for each piece of C, in parallel: for each tile of it, microkernel.hpp
//
// The numbers of A are read where they lie, so A is never packed. Each element of C is one sum over k in order,
// whatever the number of threads: the same bits on 1 and on 100. Vectors are GCC's and Clang's; they become whatever
// the target has.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/cpu/microkernel.hpp>

#include <algorithm>

namespace cairn::builtin {

/// Packs rows [begin, end) of op(B), `columns` columns wide, into panels of k rows each; zeros fill the last panel. B
/// is read in the order in which it lies in memory: row by row, or by blocks of a vector's columns where it is
/// transposed.
template <class T>
void pack_rows(bool trans, index_t begin, index_t end, index_t k, index_t columns, const T* b, index_t ldb, T* panels) {
    constexpr index_t width = panel_columns<T>, n = lanes<T>;
    const index_t full = columns / width * width, padded = (columns + width - 1) / width * width;
    const auto to = [&](index_t i, index_t j) { return panels + j / width * k * width + i * width + j % width; };
    if (!trans) {
        for (index_t i = begin; i < end; ++i) {
            const T* row = b + i * ldb;
            for (index_t j = 0; j < full; j += n) store(to(i, j), load(row + j));
            if (full < padded) std::fill(std::copy(row + full, row + columns, to(i, full)), to(i, full) + width, T{});
        }
        return;
    }
    for (index_t j = 0; j < padded; j += n) {
        index_t i = begin;
        if constexpr (n <= 16)  // not for small integers
            for (; j + n <= columns && i + n <= end; i += n) {
                vec<T> rows[n];
                for (index_t r = 0; r < n; ++r) rows[r] = load(b + (j + r) * ldb + i);
                winograd::transpose<T>(rows);
                for (index_t r = 0; r < n; ++r) store(to(i + r, j), rows[r]);
            }
        for (; i < end; ++i)
            for (index_t r = 0; r < n; ++r) to(i, j)[r] = j + r < columns ? b[(j + r) * ldb + i] : T{};
    }
}

/// Copies k rows of `rows` numbers, lda apart, into strips as tall as the tiles will be, next_rows(): the strip that
/// starts at row r at strips + r (k + lanes). `readable` numbers may be read of each row of A.
template <class T>
void pack_strips(index_t k, index_t rows, index_t readable, const T* a, index_t lda, T* strips) {
    for (index_t i = 0; i < k; ++i, a += lda)
        for (index_t r = 0, high; r < rows; r += high) {
            high = next_rows(rows - r, tile_rows);
            T* to = strips + r * (k + lanes<T>)+i * high;
            if (high <= lanes<T> && r + lanes<T> <= readable && r + high < rows)
                store(to, load(a + r));
            else
                std::copy_n(a + r, high, to);
        }
}

inline constexpr index_t n_block = 2048, m_piece = 8 * tile_rows, n_piece = 512;

/// c = alpha op(a) op(b) + beta c, row-major; op(a) is m × k, op(b) is k × n. `threaded` is false inside a parallel
/// region.
template <class T>
void gemm(bool threaded, bool trans_a, bool trans_b, index_t m, index_t n, index_t k, T alpha, const T* a, index_t lda,
          const T* b, index_t ldb, T beta, T* c, index_t ldc) {
    constexpr index_t width = panel_columns<T>;
    const bool worth = threaded && static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) > 1e5;
    const auto each = [&](index_t count, auto&& body) {
        if (worth)
            parallel_for(count, 1, [&](index_t begin, index_t end) {
                for (index_t i = begin; i < end; ++i) body(i);
            });
        else
            for (index_t i = 0; i < count; ++i) body(i);
    };
    // Few rows do not repay the packing of an untransposed B: its rows are read in place, but for the ragged last
    // columns.
    const bool packs = trans_b || m > 4 * tile_rows;
    // A narrow B stays in the second-level cache with more rows, and A is read in longer stretches.
    const index_t k_block = trans_a ? 256 : n <= 64 ? 1024 : n <= 128 ? 512 : 256;
    const index_t panel_rows = std::min(k, k_block);
    const index_t panels_most = (std::min(n, n_block) + width - 1) / width;
    tensor<T> packed({packs ? panels_most * panel_rows * width : panel_rows * width}, memory_category::workspace);
    // The numbers of a transposed A are spread over many lines of the cache: copied strip by strip, they are dense.
    thread_rooms<T> strips(trans_a ? std::min(m, m_piece) * (panel_rows + lanes<T>) : 0, worth);
    if (on_phantom_rank()) return;
    for (index_t jc = 0; jc < n; jc += n_block) {
        const index_t columns = std::min(n_block, n - jc);
        for (index_t pc = 0; pc < k; pc += k_block) {
            const index_t depth = std::min(k_block, k - pc);
            const T beta_here = pc == 0 ? beta : T{1};
            const auto b_at = [&](index_t j) { return trans_b ? b + (jc + j) * ldb + pc : b + pc * ldb + jc + j; };
            if (packs)
                each((depth + 31) / 32, [&](index_t rows) {
                    pack_rows(trans_b, 32 * rows, std::min(depth, 32 * rows + 32), depth, columns, b_at(0), ldb,
                              packed.data());
                });
            else if (columns % width)
                pack_rows(false, 0, depth, depth, columns % width, b_at(columns - columns % width), ldb, packed.data());
            const index_t column_pieces = (columns + n_piece - 1) / n_piece;
            each((m + m_piece - 1) / m_piece * column_pieces, [&](index_t piece) {
                const index_t ic = piece / column_pieces * m_piece, first = piece % column_pieces * n_piece;
                const index_t rows = std::min(m_piece, m - ic), last = std::min(columns, first + n_piece);
                T* const dense = strips.here();
                if (trans_a) pack_strips(depth, rows, m - ic, a + ic + pc * lda, lda, dense);
                for (index_t j = first, wide; j < last; j += wide) {
                    const bool in_place = !packs && columns - j >= width;
                    const T* panel = in_place ? b_at(j) : packed.data() + (packs ? j / width * depth * width : 0);
                    int vectors = tile_vectors<T>(rows, columns - j);
                    if (!packs && columns - j < 2 * width) vectors = std::min(vectors, 2);
                    wide = std::min(vectors * lanes<T>, columns - j);
                    for (index_t r = 0, high; r < rows; r += high) {
                        high = trans_a ? next_rows(rows - r, tile_rows) : rows;
                        const tile_segment whole{0, 0, depth};
                        const T* a_strip = trans_a ? dense + r * (depth + lanes<T>) : a + (ic + r) * lda + pc;
                        tile_strip<T>(vectors, high,
                                      {a_strip, trans_a ? 1 : lda, trans_a ? high : 1, panel, in_place ? ldb : width,
                                       in_place ? width : depth * width, &whole, 1},
                                      {c + (ic + r) * ldc + jc + j, ldc, wide, alpha, beta_here});
                    }
                }
            });
        }
    }
}

}  // namespace cairn::builtin
