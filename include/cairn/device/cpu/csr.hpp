#pragma once
// Product of a sparse matrix A by compressed rows (core/csr.hpp) and a dense one, on the host:
//   Y = A X      row r of Y = Σ over the values a of row r, in order, of a · X[column]
// A row of Y belongs to one thread: the same bits on any number of threads. For Aᵀ X, csr_matrix::transposed() first.
// Sums of bfloat16 run in float. Bytes: A once, a row of X for each value, Y once. device/grid/csr.hpp has the same
// name. Tested against plain loops.

#include <cairn/core/csr.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <algorithm>
#include <type_traits>
#include <vector>

namespace cairn {

/// y (a.rows, width) = a x, x (a.columns, width).
template <class T, class A>
void csr_times_dense(cpu, const csr_view<A>& a, index_t width, const T* x, T* y) {
    using S = simd::arithmetic<T>;
    const auto [flops, bytes] = a.template product_work<T>(width);
    const kernel_call call("sparse product", format_name<T>, flops, bytes, {a.rows, a.columns, a.nonzeros, width});
    const index_t per_row = (a.nonzeros / std::max<index_t>(a.rows, 1) + 1) * std::max<index_t>(width, 1);
    parallel_for(a.rows, std::max<index_t>(1, 16384 / per_row), [&](index_t first, index_t last) {
        std::vector<S> room(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(width));
        for (index_t r = first; r < last; ++r) {
            T* const out = y + r * width;
            S* sum;
            if constexpr (std::is_same_v<S, T>)
                sum = out;
            else
                sum = room.data();
            std::fill_n(sum, width, S{});
            for (index_t i = a.begin[r]; i < a.begin[r + 1]; ++i) {
                const S value = static_cast<S>(a.value[i]);
                const T* const from = x + a.column[i] * width;
#pragma omp simd
                for (index_t k = 0; k < width; ++k) sum[k] += value * from[k];
            }
            if constexpr (!std::is_same_v<S, T>)
                for (index_t k = 0; k < width; ++k) out[k] = sum[k];
        }
    });
}

}  // namespace cairn
