#pragma once
// One vector added to each row of a matrix: the bias of a layer. Its gradient is column_sums, reduce.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/widen.hpp>

namespace cairn {

/// a (rows × columns) += v (columns) in each row.
template <class T>
void add_to_rows(cpu, index_t rows, index_t columns, const T* v, T* a) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("add to rows", format_name<T>, n, sizeof(T) * (2 * n + static_cast<double>(columns)),
                           {rows, columns});
    parallel_for(rows, std::max<index_t>(1, 16384 / std::max<index_t>(columns, 1)), [&](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            T* row = a + r * columns;
#pragma omp simd
            for (index_t c = 0; c < columns; ++c) row[c] += v[c];
        }
    });
}

}  // namespace cairn
