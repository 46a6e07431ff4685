#pragma once
// Cross-entropy of rows of logits whose classes are cut over ranks: what a rank computes of its columns between the
// exchanges of parallel/tensor/vocabulary_cross_entropy.hpp, whose formulas these are. `first`: of its classes, in all.

#include <cairn/device/cpu/softmax.hpp>
#include <cairn/device/split_softmax.hpp>

namespace cairn {

/// top[r] = largest x of row r.
template <class T>
void row_maxima(cpu, index_t rows, index_t columns, const T* x, double* top) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("row maxima", format_name<T>, n, n * sizeof(T), {rows, columns});
    parallel_for(rows, detail::softmax_grain(columns), [=](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) top[r] = static_cast<double>(detail::row_max(columns, x + r * columns));
    });
}

/// The sums over this rank's columns; `e`, which may be null or x, gets exp(x − top). Throws on a label out of range.
template <class T>
void split_softmax(cpu, index_t rows, index_t columns, const T* x, const split_softmax_labels& of, const double* top,
                   const split_softmax_sums& to, T* e) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("split softmax", format_name<T>, (to.spreads ? 5 : 3) * n, (e ? 2 : 1) * n * sizeof(T),
                           {rows, columns});
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < rows; ++r)
        require(of.labels[r] >= 0 && of.labels[r] < of.classes, "vocabulary_cross_entropy: label ", of.labels[r],
                " of row ", r, " is not in [0, ", of.classes, ')');
    parallel_for(rows, detail::softmax_grain(columns), [=](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const T* const row = x + r * columns;
            const T m = static_cast<T>(top[r]);
            const index_t label = of.labels[r] - of.first;
            to.hits[r] = label >= 0 && label < columns ? static_cast<double>(row[label] - m) : 0;
            if (to.spreads) {
                T spread = 0;
                for (index_t k = 0; k < columns; ++k) spread += row[k] - m;
                to.spreads[r] = static_cast<double>(spread);
            }
            to.exponentials[r] =
                static_cast<double>(detail::row_exp(columns, row, m, e ? e + r * columns : static_cast<T*>(nullptr)));
        }
    });
}

/// e becomes the gradient of the mean over rows.
template <class T>
void split_softmax_gradient(cpu, index_t rows, index_t columns, const split_softmax_labels& of,
                            const double* exponentials, T* e) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    const kernel_call call("split softmax gradient", format_name<T>, 2 * n, 2 * n * sizeof(T), {rows, columns});
    const double mean = 1 / static_cast<double>(rows);
    parallel_for(rows, detail::softmax_grain(columns), [=](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            T* const g = e + r * columns;
            const T factor = static_cast<T>(mean / exponentials[r]), spread = static_cast<T>(mean * of.share());
#pragma omp simd
            for (index_t k = 0; k < columns; ++k) g[k] = g[k] * factor - spread;
            const index_t label = of.labels[r] - of.first;
            if (label >= 0 && label < columns) g[label] -= static_cast<T>(mean * (1 - of.smoothing));
        }
    });
}

/// *out = Σ of the rows' losses.
inline void split_softmax_loss(cpu, index_t rows, const split_softmax_labels& of, const split_softmax_sums& sums,
                               double* out) {
    const double n = static_cast<double>(rows);
    const kernel_call call("split softmax loss", "f64", 8 * n, 24 * n, {rows});
    *out = 0;
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < rows; ++r)
        *out += of.loss(sums.exponentials[r], sums.hits[r], sums.spreads ? sums.spreads[r] : 0);
}

/// out[r] = x[r, columns_of[r]].
template <class T>
void values_at(cpu, index_t rows, index_t columns, const T* x, const std::int32_t* column_of, double* out) {
    const double n = static_cast<double>(rows);
    const kernel_call call("values of columns", format_name<T>, n, n * (sizeof(T) + 12), {rows});
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < rows; ++r) out[r] = static_cast<double>(x[r * columns + column_of[r]]);
}

}  // namespace cairn
