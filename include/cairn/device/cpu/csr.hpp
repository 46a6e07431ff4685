#pragma once
// Products of a sparse matrix A by compressed rows (core/csr.hpp) and a dense one, on the host:
//   csr_times_dense               Y = A X      row r of Y = Σ over the values a of row r, in order, of a · X[column]
//   csr_transposed_times_dense    Y = Aᵀ X     Y[column] += a · row r of X, rows in their order
// A row of Y, or a slice of Y's columns, belongs to one thread: the same bits on any number of threads. Where Aᵀ is
// needed often, csr_matrix::transposed() and the first product are faster.
// Bytes: A once, a row of X for each value, Y once. Tested against plain loops.

#include <cairn/core/csr.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>

#include <algorithm>

namespace cairn {

namespace detail {

template <class T, class A>
void count_csr_product(const csr_matrix<A>& a, index_t width) {
    const double n = static_cast<double>(a.nonzeros()), w = static_cast<double>(width);
    flop_counter::count(
        2 * n * w, n * (sizeof(A) + sizeof(std::int32_t)) + sizeof(T) * w * static_cast<double>(a.rows + a.columns));
}

/// y[0 … n) += a · x.
template <class T>
void add_multiple(index_t n, T a, const T* x, T* y) {
#pragma omp simd
    for (index_t k = 0; k < n; ++k) y[k] += a * x[k];
}

}  // namespace detail

/// y (a.rows, width) = a x, x (a.columns, width).
template <class T, class A>
void csr_times_dense(cpu, const csr_matrix<A>& a, index_t width, const T* x, T* y) {
    const index_t per_row = (a.nonzeros() / std::max<index_t>(a.rows, 1) + 1) * std::max<index_t>(width, 1);
    parallel_for(a.rows, std::max<index_t>(1, 16384 / per_row), [&](index_t first, index_t last) {
        for (index_t r = first; r < last; ++r) {
            T* const row = y + r * width;
            std::fill_n(row, width, T{});
            for (index_t i = a.begin[static_cast<std::size_t>(r)]; i < a.begin[static_cast<std::size_t>(r) + 1]; ++i) {
                const auto at = static_cast<std::size_t>(i);
                detail::add_multiple(width, static_cast<T>(a.value[at]), x + a.column[at] * width, row);
            }
        }
    });
    detail::count_csr_product<T>(a, width);
}

/// y (a.columns, width) = aᵀ x, x (a.rows, width).
template <class T, class A>
void csr_transposed_times_dense(cpu, const csr_matrix<A>& a, index_t width, const T* x, T* y) {
    constexpr index_t slice = 64 / sizeof(T);  // a cache line
    parallel_for(width, slice, [&](index_t first, index_t last) {
        for (index_t c = 0; c < a.columns; ++c) std::fill(y + c * width + first, y + c * width + last, T{});
        for (index_t r = 0; r < a.rows; ++r)
            for (index_t i = a.begin[static_cast<std::size_t>(r)]; i < a.begin[static_cast<std::size_t>(r) + 1]; ++i) {
                const auto at = static_cast<std::size_t>(i);
                detail::add_multiple(last - first, static_cast<T>(a.value[at]), x + r * width + first,
                                     y + a.column[at] * width + first);
            }
    });
    detail::count_csr_product<T>(a, width);
}

}  // namespace cairn
