#pragma once
// Product of a sparse matrix by compressed rows and a dense one on a grid device: same name, meaning and order of sums
// as device/cpu/csr.hpp. A thread an element of Y, whose neighbours read neighbours of X.

#include <cairn/core/csr.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/for_each.hpp>

namespace cairn {

namespace grid {

template <class T, class A>
struct csr_times_dense_kernel {
    csr_view<A> a;
    index_t width;
    const T* x;
    T* y;
    CAIRN_HD void operator()(index_t at) const {
        const index_t r = at / width, k = at % width;
        sum_type<T> sum = 0;
        for (index_t i = a.begin[r]; i < a.begin[r + 1]; ++i)
            sum += static_cast<sum_type<T>>(a.value[i]) * static_cast<sum_type<T>>(x[a.column[i] * width + k]);
        y[at] = static_cast<T>(sum);
    }
};

}  // namespace grid

/// y (a.rows, width) = a x, x (a.columns, width); a lies in the device's memory.
template <class T, class A, GridDevice D>
void csr_times_dense(D d, const csr_view<A>& a, index_t width, const T* x, T* y) {
    grid::for_indices(d, a.rows * width, grid::csr_times_dense_kernel<T, A>{a, width, x, y});
    const auto [flops, bytes] = a.template product_work<T>(width);
    flop_counter::count(flops, bytes);
}

}  // namespace cairn
