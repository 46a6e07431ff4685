#pragma once
// Σ x² of each part of an array on a grid device, a part being a parameter of an arena. The bits of a part do not
// depend on the others: pieces of a fixed size are added by a block each, the pieces of a part by one.

#include <cairn/core/range.hpp>
#include <cairn/device/grid/array_sums.hpp>

#include <cmath>

namespace cairn {

namespace grid {

/// of_piece[block] = Σ x² of piece `block`.
template <class T>
struct squares_of_pieces {
    const range* pieces;
    const T* x;
    double* of_piece;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const range piece = pieces[b.block()];
        const index_t end = piece.begin + piece.count;
        double sum = 0;
        for (index_t i = piece.begin + b.thread(); i < end; i += b.threads()) sum += term_square{}(x[i]);
        sum = block_sum(b, sum, b.template shared<double>());
        if (b.thread() == 0) of_piece[b.block()] = sum;
    }
};

/// of_part[block] = Σ of the pieces of part `block`.
struct sums_of_parts {
    const index_t* first;
    const double* of_piece;
    double* of_part;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double sum = 0;
        for (index_t i = first[b.block()] + b.thread(); i < first[b.block() + 1]; i += b.threads()) sum += of_piece[i];
        sum = block_sum(b, sum, b.template shared<double>());
        if (b.thread() == 0) of_part[b.block()] = sum;
    }
};

/// *out = √ Σ sums, one after the other; by one block.
struct norm_in_order {
    index_t n;
    const double* sums;
    double* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double* const here = b.template shared<double>();
        double total = 0;
        for (index_t begin = 0; begin < n; begin += b.threads()) {
            if (begin + b.thread() < n) here[b.thread()] = sums[begin + b.thread()];
            b.sync();
            if (b.thread() == 0)
                for (index_t i = 0; i < b.threads() && begin + i < n; ++i) total += here[i];
            b.sync();
        }
        if (b.thread() == 0) *out = std::sqrt(total);
    }
};

}  // namespace grid

/// Elements of a piece in sums by parts.
template <GridDevice D>
constexpr index_t piece_of_parts(D) {
    return index_t{1} << 14;
}

/// Σ x² of each part of an array into of_part (device memory), with bits that do not depend on the other parts.
/// `pieces` and `first` are those of parts_in_pieces, in device memory; n: elements of all parts.
template <class T, GridDevice D>
void sums_of_squares_into(D, index_t n, const tensor<range, D>& pieces, const tensor<index_t, D>& first, const T* x,
                          tensor<double, D>& of_part) {
    flop_counter::count(2.0 * static_cast<double>(n), static_cast<double>(n) * sizeof(T));
    tensor<double, D> of_piece({pieces.size()}, memory_category::workspace);
    if (pieces.size() > 0)
        D::launch({.blocks = pieces.size(), .threads = grid::reduce_threads, .shared = grid::sum_scratch},
                  grid::squares_of_pieces<T>{pieces.data(), x, of_piece.data()});
    if (of_part.size() > 0)
        D::launch({.blocks = of_part.size(), .threads = grid::reduce_threads, .shared = grid::sum_scratch},
                  grid::sums_of_parts{first.data(), of_piece.data(), of_part.data()});
}

/// √ Σ sums into *out (device memory), the sums added one after the other.
template <GridDevice D>
void norm_in_order_into(D, const tensor<double, D>& sums, double* out) {
    constexpr index_t room = grid::reduce_threads * index_t{sizeof(double)};
    D::launch({.blocks = 1, .threads = grid::reduce_threads, .shared = room},
              grid::norm_in_order{sums.size(), sums.data(), out});
}

}  // namespace cairn
