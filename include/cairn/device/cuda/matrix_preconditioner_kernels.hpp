#pragma once
// What Muon, Shampoo and SOAP do to matrices on a grid device, as device/cpu/matrix_preconditioner_kernels.hpp has it
// on the host. Lengths and orders stay on the device: nothing waits.

#include <cairn/device/cuda/array_sums.hpp>
#include <cairn/device/cuda/column_sums.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

/// to (rows, columns) = scale · x, or of xᵀ; the scale is divided by the length, whose square the device has, plus
/// 1e-7; null: as it is.
template <class T>
struct scaled_matrix_kernel {
    index_t rows, columns;
    bool turned;
    T scale;
    const double* square;
    const T* x;
    T* to;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const T s = square ? static_cast<T>(1 / (std::sqrt(*square) + 1e-7)) : scale;
        const index_t n = rows * columns, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t r = quotient(i, columns), c = i - r * columns;
            to[i] = s * (turned ? x[c * rows + r] : x[i]);
        }
    }
};

template <class T>
struct powered_columns_kernel {
    index_t n;
    const T *values, *vectors;
    double power, epsilon, rounding;
    T* to;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const double most = static_cast<double>(values[n - 1]);
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n * n; i += stride) {
            const double w = static_cast<double>(values[i - quotient(i, n) * n]) + epsilon * most,
                         least = most * rounding;
            to[i] = most > 0 ? static_cast<T>(static_cast<double>(vectors[i]) * std::pow(w < least ? least : w, power))
                             : T{};
        }
    }
};

/// partial (2, blocks) = this block's part of ‖v‖² and ‖g‖².
template <class T>
struct lengths_kernel {
    index_t rows, columns, stride;
    const T *v, *g;
    double* partial;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        double vv = 0, gg = 0;
        const index_t n = rows * columns, step = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += step) {
            const index_t r = quotient(i, columns);
            const auto d = static_cast<double>(v[i]), e = static_cast<double>(g[r * stride + i - r * columns]);
            vv += d * d, gg += e * e;
        }
        double* const scratch = b.template shared<double>();
        vv = block_sum(b, vv, scratch), gg = block_sum(b, gg, scratch);
        if (b.thread() != 0) return;
        partial[b.block()] = vv;
        partial[b.blocks() + b.block()] = gg;
    }
};

/// squares: ‖v‖² and ‖g‖².
template <class T>
struct graft_matrix_kernel {
    index_t rows, columns, stride;
    const double* squares;
    const T* v;
    T* g;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        if (!(squares[0] > 0)) return;
        const T scale = static_cast<T>(std::sqrt(squares[1] / squares[0]));
        const index_t n = rows * columns, step = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += step) {
            const index_t r = quotient(i, columns);
            g[r * stride + i - r * columns] = scale * v[i];
        }
    }
};

/// values (n) = Σ_r q[r, c] product[r, c], what is not a number as −∞; a thread a column.
template <class T>
struct column_products_kernel {
    index_t n;
    T least;
    const T *q, *product;
    T* values;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t c = b.block() * b.threads() + b.thread(); c < n; c += stride) {
            T sum{};
            for (index_t r = 0; r < n; ++r) sum += q[r * n + c] * product[r * n + c];
            values[c] = sum == sum ? sum : least;
        }
    }
};

/// order[k] = i where k values come before value i: larger ones, and equal ones that are earlier.
template <class T>
struct descending_order_kernel {
    index_t n;
    const T* values;
    std::int32_t* order;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const T mine = values[i];
            index_t before = 0;
            for (index_t k = 0; k < n; ++k) before += values[k] > mine || (values[k] == mine && k < i);
            order[before] = static_cast<std::int32_t>(i);
        }
    }
};

/// Columns or rows in this order; null: columns, the last one first.
template <class T>
struct reordered_kernel {
    index_t rows, columns;
    bool of_rows;
    const std::int32_t* order;
    const T* from;
    T* to;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t n = rows * columns, stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride) {
            const index_t r = quotient(i, columns), c = i - r * columns;
            if (of_rows)
                to[i] = from[order[r] * columns + c];
            else
                to[i] = from[r * columns + (order ? static_cast<index_t>(order[c]) : columns - 1 - c)];
        }
    }
};

template <GridDevice D>
grid_size one_each(index_t n) {
    return {.blocks = blocks_for<D>(n, 256, 2), .threads = 256};
}

}  // namespace grid

/// to (rows, columns) = scale · x (rows, columns), or with `turned` scale · xᵀ of x (columns, rows); not in place.
template <class T, GridDevice D>
void scaled_matrix(D, index_t rows, index_t columns, bool turned, T scale, const T* x, T* to) {
    if (rows * columns > 0)
        D::launch(grid::one_each<D>(rows * columns),
                  grid::scaled_matrix_kernel<T>{rows, columns, turned, scale, nullptr, x, to});
}

/// The same with 1 / (‖x‖_F + 1e-7) for the scale.
template <class T, GridDevice D>
void normalised_matrix(D d, index_t rows, index_t columns, bool turned, const T* x, T* to) {
    if (rows * columns == 0) return;
    tensor<double, D> square({1}, memory_category::workspace);
    sum_of_squares_into(d, rows * columns, x, square.data());
    D::launch(grid::one_each<D>(rows * columns),
              grid::scaled_matrix_kernel<T>{rows, columns, turned, T{}, square.data(), x, to});
}

/// to (n, n): column c of `vectors` times (w + floor)^power of its eigenvalue w, floor = epsilon · the largest of
/// `values` (n), which ascend, and w + floor at least the largest times T's rounding. Zeros if none is positive.
template <class T, GridDevice D>
void powered_columns(D, index_t n, const T* values, const T* vectors, double power, double epsilon, T* to) {
    if (n > 0)
        D::launch(grid::one_each<D>(n * n),
                  grid::powered_columns_kernel<T>{n, values, vectors, power, epsilon,
                                                  static_cast<double>(std::numeric_limits<T>::epsilon()), to});
}

/// g (rows, columns), rows `stride` numbers apart, becomes v (rows, columns) times ‖g‖ / ‖v‖; it stays where v is zero.
template <class T, GridDevice D>
void graft_matrix(D, index_t rows, index_t columns, const T* v, T* g, index_t stride) {
    if (rows * columns == 0) return;
    const index_t blocks = grid::reduce_blocks_for(rows * columns);
    tensor<double, D> partial({2, blocks}, memory_category::workspace), squares({2}, memory_category::workspace);
    D::launch({.blocks = blocks, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::lengths_kernel<T>{rows, columns, stride, v, g, partial.data()});
    D::launch({.blocks = 2, .threads = grid::reduce_threads, .shared = grid::sum_scratch},
              grid::sum_partials{blocks, partial.data(), squares.data()});
    D::launch(grid::one_each<D>(rows * columns),
              grid::graft_matrix_kernel<T>{rows, columns, stride, squares.data(), v, g});
}

/// order (n) = the columns c of two matrices (n, n) by Σ_r q[r, c] product[r, c], largest first, of equals the first
/// one first. What is not a number comes last.
template <class T, GridDevice D>
void order_of_columns(D, index_t n, const T* q, const T* product, std::int32_t* order) {
    if (n == 0) return;
    tensor<T, D> values({n}, memory_category::workspace);
    D::launch({.blocks = grid::blocks_for<D>(n, 64), .threads = 64},
              grid::column_products_kernel<T>{n, -std::numeric_limits<T>::infinity(), q, product, values.data()});
    D::launch({.blocks = grid::blocks_for<D>(n, 64), .threads = 64},
              grid::descending_order_kernel<T>{n, values.data(), order});
}

/// to (rows, columns) = from (rows, columns) with its columns, or its rows, in this order; not in place.
template <class T, GridDevice D>
void reordered(D, index_t rows, index_t columns, bool of_rows, const std::int32_t* order, const T* from, T* to) {
    if (rows * columns > 0)
        D::launch(grid::one_each<D>(rows * columns),
                  grid::reordered_kernel<T>{rows, columns, of_rows, order, from, to});
}

/// to (n, n) = from (n, n) with the last column first; not in place.
template <class T, GridDevice D>
void reversed_columns(D, index_t n, const T* from, T* to) {
    if (n > 0) D::launch(grid::one_each<D>(n * n), grid::reordered_kernel<T>{n, n, false, nullptr, from, to});
}

}  // namespace cairn
