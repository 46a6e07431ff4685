#pragma once
// One vector added to each row of a matrix: the bias of a layer. Its gradient is column_sums, reduce.hpp.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/work.hpp>

namespace cairn {

/// a (rows × columns) += v (columns) in each row.
template <class T>
void add_to_rows(cpu, index rows, index columns, const T* v, T* a) {
    parallel_for(rows, std::max<index>(1, 16384 / std::max<index>(columns, 1)), [&](index begin, index end) {
        for (index r = begin; r < end; ++r) {
            T* row = a + r * columns;
#pragma omp simd
            for (index c = 0; c < columns; ++c) row[c] += v[c];
        }
    });
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    work::count(n, sizeof(T) * (2 * n + static_cast<double>(columns)));
}

}  // namespace cairn
