#pragma once
// Sums down the columns of a matrix on a grid device, in two launches: blocks add parts of the rows in float, one more
// adds the parts in double, in one order. The cut does not depend on the card. x is read once.

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/grid/grid.hpp>

#include <algorithm>

namespace cairn {

namespace grid {

/// partial[part, c] = Σ over the rows of this part of x[r, c], or of its square, in the type that sums run in; a block
/// has `across` neighbouring columns and threads / across rows at a time. Rows begin `stride` elements apart.
template <class T, class Sum, bool Square = false>
struct column_parts {
    index_t rows, columns, stride, parts;
    int across;
    const T* x;
    Sum* partial;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t strips = (columns + across - 1) / across, strip = b.block() % strips, part = b.block() / strips;
        const index_t c = strip * across + b.thread() % across;
        const int lane = static_cast<int>(b.thread()) / across, lanes = static_cast<int>(b.threads()) / across;
        const index_t begin = rows * part / parts, end = rows * (part + 1) / parts;
        Sum sum{};
        if (c < columns)
            for (index_t r = begin + lane; r < end; r += lanes) {
                const auto v = static_cast<Sum>(x[r * stride + c]);
                sum += Square ? v * v : v;
            }
        Sum* const all = b.template shared<Sum>();
        all[b.thread()] = sum;
        b.sync();
        if (lane == 0 && c < columns) {
            for (int k = 1; k < lanes; ++k) sum += all[k * across + b.thread()];
            partial[part * columns + c] = sum;
        }
    }
};

inline constexpr int totals_across = 8, totals_threads = 512;  // columns side by side in a block, and threads

/// Blocks of a kernel that adds up the parts of `columns` columns.
inline index_t totals_blocks(index_t columns) { return (columns + totals_across - 1) / totals_across; }

/// Σ over the parts of column `c`, partial (parts, columns), for the thread that has true from first_of_column(): 64
/// threads share a column, for one would wait for a thousand parts one after the other; eight columns fill a sector.
/// `scratch`: a double a thread.
template <class Block>
CAIRN_HD bool first_of_column(Block& b) {
    return b.thread() < totals_across;
}
template <class Block, class Sum>
CAIRN_HD double total_of_parts(Block& b, index_t columns, index_t parts, index_t c, const Sum* partial,
                               double* scratch) {
    const int lanes = static_cast<int>(b.threads()) / totals_across,
              lane = static_cast<int>(b.thread()) / totals_across;
    double sum = 0;
    if (c < columns)
        for (index_t p = lane; p < parts; p += 4 * lanes) {
            Sum v[4];
            CAIRN_UNROLL
            for (int k = 0; k < 4; ++k) v[k] = p + k * lanes < parts ? partial[(p + k * lanes) * columns + c] : Sum{};
            CAIRN_UNROLL
            for (int k = 0; k < 4; ++k) sum += static_cast<double>(v[k]);
        }
    scratch[b.thread()] = sum;
    b.sync();
    if (first_of_column(b))
        for (int k = 1; k < lanes; ++k) sum += scratch[k * totals_across + b.thread()];
    return sum;
}

template <class T, class Sum>
struct column_totals {  // T: of the results
    static constexpr int most_threads = totals_threads;
    index_t columns, parts;
    const Sum* partial;
    T* out;
    bool accumulate;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t c = b.block() * totals_across + b.thread() % totals_across;
        const double sum = total_of_parts(b, columns, parts, c, partial, b.template shared<double>());
        if (first_of_column(b) && c < columns)
            out[c] = accumulate ? static_cast<T>(static_cast<double>(out[c]) + sum) : static_cast<T>(sum);
    }
};

/// How a matrix (rows, columns) is cut for sums down its columns: the same on every card.
struct column_cut {
    int across = 32, threads = 256;
    index_t parts = 1;
    static column_cut of(index_t rows, index_t columns) {
        column_cut cut;
        cut.across = columns >= 32 ? 32 : columns >= 16 ? 16 : columns >= 8 ? 8 : columns >= 4 ? 4 : 1;
        const index_t strips = (columns + cut.across - 1) / cut.across, lanes = cut.threads / cut.across;
        cut.parts = std::clamp<index_t>(std::min<index_t>(rows / (4 * lanes), 2048 / strips), 1, 1024);
        return cut;
    }
    index_t blocks(index_t columns) const { return (columns + across - 1) / across * parts; }
};

/// column_sums without the count of a kernel by itself; rows of x begin `stride` elements apart.
template <bool Square = false, class T, class W, GridDevice D>
void strided_column_sums(D, index_t rows, index_t columns, index_t stride, const T* x, W* out, bool accumulate) {
    if (columns == 0) return;
    using sum = sum_type<T>;
    const column_cut cut = column_cut::of(rows, columns);
    tensor<sum, D> partial({cut.parts, columns}, memory_category::workspace);
    D::launch({.blocks = cut.blocks(columns), .threads = cut.threads, .shared = cut.threads * index_t{sizeof(sum)}},
              column_parts<T, sum, Square>{rows, columns, stride, cut.parts, cut.across, x, partial.data()});
    D::launch({.blocks = totals_blocks(columns),
               .threads = totals_threads,
               .shared = totals_threads * index_t{sizeof(double)}},
              column_totals<W, sum>{columns, cut.parts, partial.data(), out, accumulate});
}

template <class T, class W, GridDevice D>
void column_sums(D d, index_t rows, index_t columns, const T* x, W* out, bool accumulate) {
    strided_column_sums(d, rows, columns, columns, x, out, accumulate);
}

}  // namespace grid

/// out[c] = Σ_r x[r, c], or += with `accumulate`: the gradient of a bias. Parts of the rows in float, the parts in
/// double.
template <class T, class W, GridDevice D>
void column_sums(D d, index_t rows, index_t columns, const T* x, W* out, bool accumulate) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, n * sizeof(T));
    grid::column_sums(d, rows, columns, x, out, accumulate);
}

}  // namespace cairn
