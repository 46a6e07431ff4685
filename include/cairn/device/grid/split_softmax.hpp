#pragma once
// Cross-entropy of rows whose classes are cut over ranks, on a grid device: same names, arguments and formulas as
// device/cpu/split_softmax.hpp. Labels out of range cannot throw here: their loss is NaN.

#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/split_softmax.hpp>

#include <limits>

namespace cairn {

namespace grid {

template <class T>
struct row_maxima_kernel {
    index_t columns;
    const T* x;
    double* top;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const T* const row = x + b.block() * columns;
        S most = -std::numeric_limits<S>::infinity();
        for (index_t k = b.thread(); k < columns; k += b.threads())
            if (const S v = static_cast<S>(row[k]); v > most) most = v;
        most = block_max(b, most, b.template shared<S>());
        if (b.thread() == 0) top[b.block()] = static_cast<double>(most);
    }
};

template <class T>
struct split_softmax_kernel {
    index_t columns;
    const T* x;
    split_softmax_labels of;
    const double* top;
    split_softmax_sums to;
    T* e;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const index_t r = b.block(), label = of.labels[r] - of.first;
        const T* const row = x + r * columns;
        const S m = static_cast<S>(top[r]),
                at_label = label >= 0 && label < columns ? static_cast<S>(row[label]) - m : 0;
        S spread = 0, sum = 0;
        if (to.spreads)
            for (index_t k = b.thread(); k < columns; k += b.threads()) spread += static_cast<S>(row[k]) - m;
        spread = block_sum(b, spread, b.template shared<S>());
        b.sync();  // e may be x: all threads have read at_label
        for (index_t k = b.thread(); k < columns; k += b.threads()) {
            const S v = std::exp(static_cast<S>(row[k]) - m);
            sum += v;
            if (e) e[r * columns + k] = static_cast<T>(v);
        }
        sum = block_sum(b, sum, b.template shared<S>());
        if (b.thread() != 0) return;
        const bool known = of.labels[r] >= 0 && of.labels[r] < of.classes;
        to.exponentials[r] = static_cast<double>(sum);
        to.hits[r] = known ? static_cast<double>(at_label) : std::numeric_limits<double>::quiet_NaN();
        if (to.spreads) to.spreads[r] = static_cast<double>(spread);
    }
};

template <class T>
struct split_softmax_gradient_kernel {
    index_t rows, columns;
    split_softmax_labels of;
    const double* exponentials;
    T* e;

    CAIRN_HD void operator()(index_t i) const {
        using S = sum_type<T>;
        const index_t r = quotient(i, columns), k = i - r * columns;
        const double mean = 1 / static_cast<double>(rows);
        S g = static_cast<S>(e[i]) * static_cast<S>(mean / exponentials[r]) - static_cast<S>(mean * of.share());
        if (of.labels[r] - of.first == k) g -= static_cast<S>(mean * (1 - of.smoothing));
        e[i] = static_cast<T>(g);
    }
};

struct split_softmax_term {
    split_softmax_labels of;
    CAIRN_HD double operator()(double exponentials, double hit, double spread) const {
        return of.loss(exponentials, hit, spread);
    }
};

template <class T>
struct values_at_kernel {
    index_t columns;
    const T* x;
    const std::int32_t* column_of;
    double* out;
    CAIRN_HD void operator()(index_t r) const { out[r] = static_cast<double>(x[r * columns + column_of[r]]); }
};

}  // namespace grid

template <class T, GridDevice D>
void row_maxima(D d, index_t rows, index_t columns, const T* x, double* top) {
    grid::for_rows<grid::sum_type<T>>(d, rows, columns, grid::row_maxima_kernel<T>{columns, x, top});
}

template <class T, GridDevice D>
void split_softmax(D d, index_t rows, index_t columns, const T* x, const split_softmax_labels& of, const double* top,
                   const split_softmax_sums& to, T* e) {
    grid::for_rows<grid::sum_type<T>>(d, rows, columns, grid::split_softmax_kernel<T>{columns, x, of, top, to, e});
}

template <class T, GridDevice D>
void split_softmax_gradient(D d, index_t rows, index_t columns, const split_softmax_labels& of,
                            const double* exponentials, T* e) {
    grid::for_indices(d, rows * columns, grid::split_softmax_gradient_kernel<T>{rows, columns, of, exponentials, e});
}

template <GridDevice D>
void split_softmax_loss(D d, index_t rows, const split_softmax_labels& of, const split_softmax_sums& sums,
                        double* out) {
    const double* const spreads = sums.spreads ? sums.spreads : sums.hits;  // which weigh nothing then
    grid::sum_into(d, out, rows, grid::split_softmax_term{of}, sums.exponentials, sums.hits, spreads);
}

template <class T, GridDevice D>
void values_at(D d, index_t rows, index_t columns, const T* x, const std::int32_t* column_of, double* out) {
    grid::for_indices(d, rows, grid::values_at_kernel<T>{columns, x, column_of, out});
}

}  // namespace cairn
