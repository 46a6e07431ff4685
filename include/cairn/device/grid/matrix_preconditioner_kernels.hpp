#pragma once
// Kernels of Muon, Shampoo and SOAP on a grid device, as device/cpu/matrix_preconditioner_kernels.hpp has it
// on the host. Lengths and orders stay on the device: nothing waits.

#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/column_sums.hpp>

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

    CAIRN_HD scaled_matrix_kernel at_hand() const {
        scaled_matrix_kernel ready = *this;
        if (square) ready.scale = static_cast<T>(1 / (std::sqrt(*square) + 1e-7));
        return ready;
    }
    CAIRN_HD void operator()(index_t i) const {
        const index_t r = quotient(i, columns), c = i - r * columns;
        to[i] = scale * (turned ? x[c * rows + r] : x[i]);
    }
};

template <class T>
struct powered_columns_kernel {
    index_t n;
    const T *values, *vectors;
    double power, epsilon, rounding;
    T* to;
    CAIRN_HD void operator()(index_t i) const {
        const double most = static_cast<double>(values[n - 1]);
        const double w = static_cast<double>(values[i - quotient(i, n) * n]) + epsilon * most, least = most * rounding;
        to[i] =
            most > 0 ? static_cast<T>(static_cast<double>(vectors[i]) * std::pow(w < least ? least : w, power)) : T{};
    }
};

/// ‖v‖² and ‖g‖².
template <class T>
struct length_terms {
    index_t columns, stride;
    const T *v, *g;
    bool unit;
    CAIRN_HD void operator()(index_t i, double (&squares)[2]) const {
        const index_t r = quotient(i, columns);
        const auto d = static_cast<double>(v[i]), e = static_cast<double>(g[r * stride + i - r * columns]);
        squares[0] += d * d, squares[1] += unit ? 1 : e * e;
    }
};

/// squares: ‖v‖² and that of the length to have.
template <class T>
struct graft_matrix_kernel {
    index_t columns, stride;
    const double* squares;
    const T* v;
    T* g;
    T scale{};  // once at hand

    CAIRN_HD graft_matrix_kernel at_hand() const {
        graft_matrix_kernel ready = *this;
        ready.scale = static_cast<T>(std::sqrt(squares[1] / squares[0]));
        return ready;
    }
    CAIRN_HD void operator()(index_t i) const {
        const index_t r = quotient(i, columns);
        if (squares[0] > 0) g[r * stride + i - r * columns] = scale * v[i];
    }
};

/// values (n) = Σ_r q[r, c] product[r, c], what is not a number as −∞; a thread a column.
template <class T>
struct column_products_kernel {
    index_t n;
    T least;
    const T *q, *product;
    T* values;
    CAIRN_HD void operator()(index_t c) const {
        T sum{};
        for (index_t r = 0; r < n; ++r) sum += q[r * n + c] * product[r * n + c];
        values[c] = sum == sum ? sum : least;
    }
};

/// order[k] = i where k values come before value i: larger ones, and equal ones that are earlier.
template <class T>
struct descending_order_kernel {
    index_t n;
    const T* values;
    std::int32_t* order;
    CAIRN_HD void operator()(index_t i) const {
        const T mine = values[i];
        index_t before = 0;
        for (index_t k = 0; k < n; ++k) before += values[k] > mine || (values[k] == mine && k < i);
        order[before] = static_cast<std::int32_t>(i);
    }
};

/// Columns or rows in this order; null: columns, the last one first.
template <class T>
struct reordered_kernel {
    index_t columns;
    bool of_rows;
    const std::int32_t* order;
    const T* from;
    T* to;
    CAIRN_HD void operator()(index_t i) const {
        const index_t r = quotient(i, columns), c = i - r * columns;
        if (of_rows)
            to[i] = from[order[r] * columns + c];
        else
            to[i] = from[r * columns + (order ? static_cast<index_t>(order[c]) : columns - 1 - c)];
    }
};

}  // namespace grid

/// to (rows, columns) = scale · x (rows, columns), or with `turned` scale · xᵀ of x (columns, rows); not in place.
template <class T, GridDevice D>
void scaled_matrix(D d, index_t rows, index_t columns, bool turned, T scale, const T* x, T* to) {
    grid::for_indices(d, rows * columns, grid::scaled_matrix_kernel<T>{rows, columns, turned, scale, nullptr, x, to});
}

/// The same with 1 / (‖x‖_F + 1e-7) for the scale.
template <class T, GridDevice D>
void normalised_matrix(D d, index_t rows, index_t columns, bool turned, const T* x, T* to) {
    if (rows * columns == 0) return;
    tensor<double, D> square({1}, memory_category::workspace);
    sum_of_squares_into(d, rows * columns, x, square.data());
    grid::for_indices(d, rows * columns,
                      grid::scaled_matrix_kernel<T>{rows, columns, turned, T{}, square.data(), x, to});
}

/// to (n, n): column c of `vectors` times (w + floor)^power of its eigenvalue w, floor = epsilon · the largest of
/// `values` (n), which ascend, and w + floor at least the largest times T's rounding. Zeros if none is positive.
template <class T, GridDevice D>
void powered_columns(D d, index_t n, const T* values, const T* vectors, double power, double epsilon, T* to) {
    grid::for_indices(d, n * n,
                      grid::powered_columns_kernel<T>{n, values, vectors, power, epsilon,
                                                      static_cast<double>(std::numeric_limits<T>::epsilon()), to});
}

/// g (rows, columns), rows `stride` numbers apart, becomes v (rows, columns) as long as g was, or of root mean
/// square 1 (`unit`); it stays where v is zero.
template <class T, GridDevice D>
void graft_matrix(D d, index_t rows, index_t columns, const T* v, T* g, index_t stride, bool unit = false) {
    if (rows * columns == 0) return;
    tensor<double, D> squares({2}, memory_category::workspace);
    grid::sum_indices<2>(d, rows * columns, grid::length_terms<T>{columns, stride, v, g, unit}, squares.data());
    grid::for_indices(d, rows * columns, grid::graft_matrix_kernel<T>{columns, stride, squares.data(), v, g});
}

/// order (n) = the columns c of two matrices (n, n) by Σ_r q[r, c] product[r, c], largest first, of equals the first
/// one first. What is not a number comes last.
template <class T, GridDevice D>
void order_of_columns(D d, index_t n, const T* q, const T* product, std::int32_t* order) {
    if (n == 0) return;
    tensor<T, D> values({n}, memory_category::workspace);
    grid::for_indices(
        d, n, grid::column_products_kernel<T>{n, -std::numeric_limits<T>::infinity(), q, product, values.data()}, 64);
    grid::for_indices(d, n, grid::descending_order_kernel<T>{n, values.data(), order}, 64);
}

/// to (rows, columns) = from (rows, columns) with its columns, or its rows, in this order; not in place.
template <class T, GridDevice D>
void reordered(D d, index_t rows, index_t columns, bool of_rows, const std::int32_t* order, const T* from, T* to) {
    grid::for_indices(d, rows * columns, grid::reordered_kernel<T>{columns, of_rows, order, from, to});
}

/// to (n, n) = from (n, n) with the last column first; not in place.
template <class T, GridDevice D>
void reversed_columns(D d, index_t n, const T* from, T* to) {
    grid::for_indices(d, n * n, grid::reordered_kernel<T>{n, false, nullptr, from, to});
}

}  // namespace cairn
