#pragma once
// Symmetric matrices, of which one triangle is computed and copied to the other.
// Tested against plain loops in tests/optim/kfac_test.cpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/cpu/gemm.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <algorithm>

namespace cairn {

/// Copies the upper triangle of m (n, n), rows of ld numbers, to the lower one.
template <class T>
void mirror_upper(cpu, index_t n, T* m, index_t ld) {
    const double all = static_cast<double>(n) * static_cast<double>(n);
    const kernel_call call("mirror", format_name<T>, 0, all * sizeof(T), {n});
    constexpr index_t tile = 64;  // so that what is read by columns stays in the cache
    parallel_for((n + tile - 1) / tile, 1, [&](index_t first, index_t last) {
        for (index_t i = first * tile; i < std::min(n, last * tile); i += tile)
            for (index_t k = 0; k <= i; k += tile)
                for (index_t r = i; r < std::min(n, i + tile); ++r)
                    for (index_t c = k; c < std::min(r, k + tile); ++c) m[r * ld + c] = m[c * ld + r];
    });
}

namespace detail {

/// The announcement of a copy between a matrix (n, n) and its upper triangle.
template <class T>
kernel_call triangle_call(const char* kind, index_t n, double numbers) {
    return kernel_call(kind, format_name<T>, 0, numbers * static_cast<double>(n) * static_cast<double>(n) * sizeof(T),
                       {n});
}

}  // namespace detail

/// to (n (n + 1) / 2) = the upper triangle of m (n, n), row after row.
template <class T>
void pack_triangle(cpu, index_t n, const T* m, T* to) {
    const kernel_call call = detail::triangle_call<T>("pack triangle", n, 1);
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < n; ++r) to = std::copy_n(m + r * n + r, n - r, to);
}

/// m (n, n), symmetric, from its upper triangle as pack_triangle leaves it.
template <class T>
void unpack_triangle(cpu, index_t n, const T* from, T* m) {
    const kernel_call call = detail::triangle_call<T>("unpack triangle", n, 1.5);
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < n; ++r)
        for (index_t k = r; k < n; ++k) m[r * n + k] = m[k * n + r] = *from++;
}

/// Adds `value` to n numbers that are `step` apart: with n + 1, to a diagonal.
template <class T>
void add_to_diagonal(cpu, index_t n, index_t step, T value, T* m) {
    const double all = static_cast<double>(n);
    const kernel_call call("add to diagonal", format_name<T>, all, 2 * all * sizeof(T), {n, step});
    if (on_phantom_rank()) return;
    for (index_t i = 0; i < n; ++i) m[i * step] += value;
}

/// Σ of n numbers that are `step` apart. On a phantom rank each is 1: a trace that may be divided by.
template <class T>
double diagonal_sum(cpu, index_t n, index_t step, const T* m) {
    const double all = static_cast<double>(n);
    const kernel_call call("diagonal sum", format_name<T>, all, all * sizeof(T), {n, step});
    if (on_phantom_rank()) return all;
    double sum = 0;
    for (index_t i = 0; i < n; ++i) sum += static_cast<double>(m[i * step]);
    return sum;
}

/// c += weight · rowsᵀ rows: rows (count, stride ≥ width), c (width, width) symmetric with rows of ldc numbers. Strips
/// of the upper triangle by GEMM, little more than half of the arithmetic.
template <class T>
void add_symmetric_product(cpu, index_t count, index_t width, T weight, const T* rows, index_t stride, T* c,
                           index_t ldc) {
    constexpr index_t strip = 256;
    double computed = 0;  // of c
    for (index_t i = 0; i < width; i += strip)
        computed += static_cast<double>(std::min(strip, width - i)) * static_cast<double>(width - i);
    const double w = static_cast<double>(width), k = static_cast<double>(count);
    const kernel_call call("symmetric product", format_name<T>, 2 * computed * k, (k * w + 2 * w * w) * sizeof(T),
                           {count, width});
    for (index_t i = 0; i < width; i += strip)
        gemm(cpu{}, true, false, std::min(strip, width - i), width - i, count, weight, rows + i, stride, rows + i,
             stride, T{1}, c + i * ldc + i, ldc);
    mirror_upper(cpu{}, width, c, ldc);
}

}  // namespace cairn
