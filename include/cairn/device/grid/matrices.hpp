#pragma once
// Passes over matrices on a grid device, before and after a library's products and decompositions: one over their
// elements each.

#include <cairn/device/activation_kind.hpp>
#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/matrix_checks.hpp>

namespace cairn {

namespace grid {

/// out = aᵀ, (n, n).
template <class T>
struct transpose_kernel {
    index_t n;
    const T* a;
    T* out;
    CAIRN_HD void operator()(index_t i) const {
        const index_t r = quotient(i, n), c = i - r * n;
        out[i] = a[c * n + r];
    }
};

/// m[r, c] = m[c, r] below the diagonal of m (n, n), rows of ld numbers.
template <class T>
struct mirror_kernel {
    index_t n, ld;
    T* m;
    CAIRN_HD void operator()(index_t i) const {
        const index_t r = quotient(i, n), c = i - r * n;
        if (r > c) m[r * ld + c] = m[c * ld + r];
    }
};

/// c = beta c of `batch` matrices (m, n), rows of ldc numbers, `step` numbers apart; with beta 0, c is not read.
template <class R, class S>
struct scale_matrices_kernel {
    index_t m, n, ldc, step;
    S beta;
    R* c;
    CAIRN_HD void operator()(index_t i) const {
        const index_t row = quotient(i, n), which = quotient(row, m);
        R& v = c[which * step + (row - which * m) * ldc + i - row * n];
        v = beta == S{} ? R{} : static_cast<R>(beta * static_cast<S>(v));
    }
};

/// c (rows, columns) = act(c + bias + added), rows of ldc numbers, a bias (columns) and what is added (rows, columns)
/// or null.
template <class T>
struct finish_rows_kernel {
    index_t columns, ldc;
    const T *bias, *added;
    activation act;
    T* c;
    CAIRN_HD void operator()(index_t i) const {
        using S = sum_type<T>;
        const index_t row = quotient(i, columns), column = i - row * columns;
        T& v = c[row * ldc + column];
        const S sum = static_cast<S>(v) + (bias ? static_cast<S>(bias[column]) : S{}) +
                      (added ? static_cast<S>(added[row * ldc + column]) : S{});
        v = static_cast<T>(act == activation::relu ? (sum <= S{} ? S{} : sum) : activation_value(act, sum));
    }
};

/// y += x.
template <class T, class W>
struct add_rule {
    CAIRN_HD void operator()(W& y, T x) const {
        y = static_cast<W>(static_cast<sum_type<T>>(y) + static_cast<sum_type<T>>(x));
    }
};

/// out = aᵀ, (n, n); not in place.
template <class T, GridDevice D>
void transpose(D d, index_t n, const T* a, T* out) {
    for_indices(d, n * n, transpose_kernel<T>{n, a, out});
}

template <class R, class S, GridDevice D>
void scale_matrices(D d, index_t m, index_t n, S beta, R* c, index_t ldc, index_t step, index_t batch) {
    for_indices(d, batch * m * n, scale_matrices_kernel<R, S>{m, n, ldc, step, beta, c});
}

template <class T, GridDevice D>
void finish_rows(D d, index_t rows, index_t columns, const T* bias, const T* added, activation act, T* c, index_t ldc) {
    if (bias || added || act != activation::none)
        for_indices(d, rows * columns, finish_rows_kernel<T>{columns, ldc, bias, added, act, c});
}

/// Throws what detail::require_finite() throws of the same matrix on the host. Waits for the device; copies only what
/// is broken.
template <class T, GridDevice D>
void require_finite(D d, const tensor<T, D>& a, const char* what) {
    if (count_nonfinite(d, a.size(), a.data()) > 0) detail::require_finite(a.on_host(), what);
}

}  // namespace grid

/// Copies the upper triangle of m (n, n), rows of ld numbers, to the lower one.
template <class T, GridDevice D>
void mirror_upper(D d, index_t n, T* m, index_t ld) {
    grid::for_indices(d, n * n, grid::mirror_kernel<T>{n, ld, m});
}

}  // namespace cairn
