#pragma once
// Kernels of Muon, Shampoo and SOAP besides products and decompositions (optim/precondition/): one pass over
// their elements each.
// device/grid/matrix_preconditioner_kernels.hpp has the same names. Tested against plain loops in
// tests/device/cuda/matrix_preconditioner_kernel_laws.hpp.

#include <cairn/core/for_each.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

namespace cairn {

namespace detail {

/// The announcement of one pass that makes a matrix (rows, columns), `flops` operations and `moved` numbers for each
/// element.
template <class T>
kernel_call matrix_call(const char* kind, index_t rows, index_t columns, double flops, double moved = 2) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    return kernel_call(kind, format_name<T>, flops * n, moved * n * sizeof(T), {rows, columns});
}

}  // namespace detail

/// to (rows, columns) = scale · x (rows, columns), or with `turned` scale · xᵀ of x (columns, rows); not in place.
template <class T>
void scaled_matrix(cpu, index_t rows, index_t columns, bool turned, T scale, const T* x, T* to) {
    const kernel_call call = detail::matrix_call<T>(turned ? "scaled transpose" : "scaled matrix", rows, columns, 1);
    parallel_for(rows, std::max<index_t>(1, 16384 / std::max<index_t>(columns, 1)), [&](index_t first, index_t last) {
        for (index_t r = first; r < last; ++r)
            for (index_t c = 0; c < columns; ++c)
                to[r * columns + c] = scale * (turned ? x[c * rows + r] : x[r * columns + c]);
    });
}

/// The same with 1 / (‖x‖_F + 1e-7) for the scale.
template <class T>
void normalised_matrix(cpu, index_t rows, index_t columns, bool turned, const T* x, T* to) {
    const kernel_call call =
        detail::matrix_call<T>(turned ? "normalised transpose" : "normalised matrix", rows, columns, 3, 3);
    const double length = std::sqrt(dot(cpu{}, rows * columns, x, x));
    scaled_matrix(cpu{}, rows, columns, turned, static_cast<T>(1 / (length + 1e-7)), x, to);
}

/// to (n, n): column c of `vectors` times (w + floor)^power of its eigenvalue w, floor = epsilon · the largest of
/// `values` (n), which ascend, and w + floor at least the largest times T's rounding. Zeros if none is positive.
template <class T>
void powered_columns(cpu, index_t n, const T* values, const T* vectors, double power, double epsilon, T* to) {
    const kernel_call call = detail::matrix_call<T>("powered columns", n, n, 1);
    if (on_phantom_rank()) return;
    const double most = static_cast<double>(values[n - 1]);
    if (!(most > 0)) return void(std::fill_n(to, n * n, T{}));
    const double floor = epsilon * most, least = most * static_cast<double>(std::numeric_limits<T>::epsilon());
    std::vector<double> scales(static_cast<std::size_t>(n));
    for (index_t c = 0; c < n; ++c)
        scales[static_cast<std::size_t>(c)] = std::pow(std::max(static_cast<double>(values[c]) + floor, least), power);
    for (index_t r = 0; r < n; ++r)
        for (index_t c = 0; c < n; ++c)
            to[r * n + c] =
                static_cast<T>(static_cast<double>(vectors[r * n + c]) * scales[static_cast<std::size_t>(c)]);
}

/// g (rows, columns), rows `stride` numbers apart, becomes v (rows, columns) as long as g was, or of root mean
/// square 1 (`unit`); it stays where v is zero.
template <class T>
void graft_matrix(cpu, index_t rows, index_t columns, const T* v, T* g, index_t stride, bool unit = false) {
    const kernel_call call = detail::matrix_call<T>("graft", rows, columns, unit ? 3 : 5, unit ? 3 : 4);
    if (on_phantom_rank()) return;
    double gradient = unit ? static_cast<double>(rows * columns) : 0;
    for (index_t r = 0; r < rows && !unit; ++r) gradient += dot(cpu{}, columns, g + r * stride, g + r * stride);
    const double length = dot(cpu{}, rows * columns, v, v);
    if (!(length > 0)) return;
    const T scale = static_cast<T>(std::sqrt(gradient / length));
    for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < columns; ++c) g[r * stride + c] = scale * v[r * columns + c];
}

/// order (n) = the columns c of two matrices (n, n) by Σ_r q[r, c] product[r, c], largest first, of equals the first
/// one first. What is not a number comes last.
template <class T>
void order_of_columns(cpu, index_t n, const T* q, const T* product, std::int32_t* order) {
    const kernel_call call = detail::matrix_call<T>("order of columns", n, n, 2);
    if (on_phantom_rank()) return;
    std::vector<T> values(static_cast<std::size_t>(n));
    for (index_t r = 0; r < n; ++r)
        for (index_t c = 0; c < n; ++c) values[static_cast<std::size_t>(c)] += q[r * n + c] * product[r * n + c];
    for (T& v : values)
        if (std::isnan(v)) v = -std::numeric_limits<T>::infinity();
    std::iota(order, order + n, std::int32_t{0});
    std::stable_sort(order, order + n, [&](std::int32_t a, std::int32_t b) {
        return values[static_cast<std::size_t>(a)] > values[static_cast<std::size_t>(b)];
    });
}

/// to (rows, columns) = from (rows, columns) with its columns, or its rows, in this order; not in place.
template <class T>
void reordered(cpu, index_t rows, index_t columns, bool of_rows, const std::int32_t* order, const T* from, T* to) {
    const kernel_call call = detail::matrix_call<T>("reorder", rows, columns, 0);
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < columns; ++c)
            to[r * columns + c] = of_rows ? from[order[r] * columns + c] : from[r * columns + order[c]];
}

/// to (n, n) = from (n, n) with the last column first; not in place.
template <class T>
void reversed_columns(cpu, index_t n, const T* from, T* to) {
    const kernel_call call = detail::matrix_call<T>("reverse columns", n, n, 0);
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < n; ++r)
        for (index_t c = 0; c < n; ++c) to[r * n + c] = from[r * n + n - 1 - c];
}

}  // namespace cairn
