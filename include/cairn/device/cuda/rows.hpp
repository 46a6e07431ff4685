#pragma once
// What is done to each row of a matrix on a grid device; same names and meaning as device/cpu/rows.hpp.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cuda/grid.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

template <class T>
struct argmax_of_rows {
    index_t rows, columns;
    const T* x;
    std::int32_t* out;

    template <class Block>
    CAIRN_HD void operator()(
        Block& b) const {  // one thread a row: rows are short (classes), reads go through the cache
        const index_t stride = b.blocks() * b.threads();
        for (index_t r = b.block() * b.threads() + b.thread(); r < rows; r += stride) {
            const T* const row = x + r * columns;
            index_t best = 0;
            for (index_t c = 1; c < columns && row[best] == row[best]; ++c)
                if (!(row[c] <= row[best])) best = c;
            out[r] = static_cast<std::int32_t>(best);
        }
    }
};

template <class T>
struct add_to_rows_kernel {
    index_t rows, columns;
    const T* v;
    T* a;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = rows * columns, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            a[i] = static_cast<T>(static_cast<sum_type<T>>(a[i]) + static_cast<sum_type<T>>(v[remainder(i, columns)]));
    }
};

}  // namespace grid

/// out[r] = column of the largest element of row r, the first one of equals; a NaN counts as the largest.
template <class T, GridDevice D>
void argmax_rows(D, index_t rows, index_t columns, const T* x, std::int32_t* out) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, n * sizeof(T));
    if (rows > 0)
        D::launch({.blocks = grid::blocks_for<D>(rows, 128), .threads = 128},
                  grid::argmax_of_rows<T>{rows, columns, x, out});
}

namespace grid {

/// What add_to_rows does, without counting it as a kernel by itself.
template <class T, GridDevice D>
void add_to_rows(D, index_t rows, index_t columns, const T* v, T* a) {
    if (rows * columns > 0)
        D::launch({.blocks = blocks_for<D>(rows * columns, 256, 4), .threads = 256},
                  add_to_rows_kernel<T>{rows, columns, v, a});
}

}  // namespace grid

/// a (rows × columns) += v (columns) in each row.
template <class T, GridDevice D>
void add_to_rows(D d, index_t rows, index_t columns, const T* v, T* a) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, sizeof(T) * (2 * n + static_cast<double>(columns)));
    grid::add_to_rows(d, rows, columns, v, a);
}

}  // namespace cairn
