#pragma once
// Softmax and cross-entropy on a grid device: same names, arguments and formulas as device/cpu/softmax.hpp. One block a
// row; x is read twice, the second time from the cache. Labels out of range cannot throw here: their loss is NaN and
// their gradient 0.

#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/ignore_index.hpp>

#include <cmath>
#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

inline int threads_for_row(index_t columns) { return columns <= 64 ? 32 : columns <= 1024 ? 128 : 256; }

template <class S>
index_t row_scratch(int threads) {
    return threads / warp_threads * index_t{sizeof(S)};
}

/// Largest of a row, NaN if there is one.
template <class S, class Block, class T>
CAIRN_HD S row_max(Block& b, index_t columns, const T* x) {
    S most = -std::numeric_limits<S>::infinity(), broken = 0;
    for (index_t k = b.thread(); k < columns; k += b.threads()) {
        const S v = static_cast<S>(x[k]);
        if (v != v) broken = 1;
        most = v > most ? v : most;
    }
    most = block_max(b, most, b.template shared<S>());
    broken = block_max(b, broken, b.template shared<S>());
    return broken > 0 ? std::numeric_limits<S>::quiet_NaN() : most;
}

template <class S, class Block, class T>
CAIRN_HD S row_exp_sum(Block& b, index_t columns, const T* x, S most) {
    S sum = 0;
    for (index_t k = b.thread(); k < columns; k += b.threads()) sum += std::exp(static_cast<S>(x[k]) - most);
    return block_sum(b, sum, b.template shared<S>());
}

template <class T>
struct softmax_forward_kernel {
    index_t columns;
    const T* x;
    T* y;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const T* const row = x + b.block() * columns;
        const S most = row_max<S>(b, columns, row), inverse = S(1) / row_exp_sum<S>(b, columns, row, most);
        for (index_t k = b.thread(); k < columns; k += b.threads())
            y[b.block() * columns + k] = static_cast<T>(std::exp(static_cast<S>(row[k]) - most) * inverse);
    }
};

template <class T>
struct softmax_backward_kernel {
    index_t columns;
    const T *y, *dy;
    T* dx;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const index_t from = b.block() * columns;
        S dot = 0;
        for (index_t k = b.thread(); k < columns; k += b.threads())
            dot += static_cast<S>(y[from + k]) * static_cast<S>(dy[from + k]);
        dot = block_sum(b, dot, b.template shared<S>());
        for (index_t k = b.thread(); k < columns; k += b.threads())
            dx[from + k] = static_cast<T>(static_cast<S>(y[from + k]) * (static_cast<S>(dy[from + k]) - dot));
    }
};

template <class T, class S>
struct cross_entropy_kernel {
    index_t columns;
    const T* logits;
    const std::int32_t* labels;
    S smoothing;
    S* loss;
    T* dlogits;
    S scale;
    const S* class_weights;
    const double* divisor;
    std::int32_t ignore_index;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t from = b.block() * columns;
        const T* const x = logits + from;
        const index_t label = labels[b.block()];
        const bool ignored = label == ignore_index, known = !ignored && label >= 0 && label < columns;
        const S most = row_max<S>(b, columns, x), sum = row_exp_sum<S>(b, columns, x, most);
        const S share = smoothing / static_cast<S>(columns);
        const auto weight = [this](index_t k) { return class_weights ? class_weights[k] : S(1); };
        S spread = 0, weights = 0;  // Σ w (x − max), Σ w
        if (smoothing > 0)
            for (index_t k = b.thread(); k < columns; k += b.threads()) {
                spread += weight(k) * (static_cast<S>(x[k]) - most);
                weights += weight(k);
            }
        spread = block_sum(b, spread, b.template shared<S>());
        weights = block_sum(b, weights, b.template shared<S>());
        const S hit = known ? (S(1) - smoothing) * weight(label) : S{}, total = hit + share * weights;
        const S at_label = known ? static_cast<S>(x[label]) - most : S{};
        b.sync();  // dlogits may be logits: all threads have read at_label
        if (b.thread() == 0)
            loss[b.block()] = known     ? -hit * at_label - share * spread + total * std::log(sum)
                              : ignored ? S{}
                                        : std::numeric_limits<S>::quiet_NaN();
        if (!dlogits) return;
        const S part = divisor ? static_cast<S>(*divisor > 0 ? static_cast<double>(scale) / *divisor
                                                             : std::numeric_limits<double>::quiet_NaN())
                               : scale;
        const S factor = part * total / sum;
        for (index_t k = b.thread(); k < columns; k += b.threads()) {
            const S p = std::exp(static_cast<S>(x[k]) - most) * factor - part * share * weight(k) -
                        (k == label ? part * hit : S{});
            dlogits[from + k] = static_cast<T>(known ? p : S{});
        }
    }
};

/// The weight of a label's class, 1 where there are no weights; nothing for a label that is ignored or out of range.
template <class S>
struct term_label_weight {
    index_t classes;
    const S* class_weights;
    std::int32_t ignore_index;
    CAIRN_HD double operator()(std::int32_t label) const {
        if (label == ignore_index || label < 0 || label >= classes) return 0.0;
        return class_weights ? static_cast<double>(class_weights[label]) : 1.0;
    }
};

template <class S, GridDevice D, class Body>
void for_rows(D, index_t rows, index_t columns, Body body) {
    const int threads = threads_for_row(columns);
    if (rows > 0) D::launch({.blocks = rows, .threads = threads, .shared = row_scratch<S>(threads)}, body);
}

}  // namespace grid

/// y = softmax of each row. y may be x.
template <class T, GridDevice D>
void softmax_forward(D d, index_t rows, index_t classes, const T* x, T* y) {
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    flop_counter::count(5 * n, 2 * n * sizeof(T));
    grid::for_rows<grid::sum_type<T>>(d, rows, classes, grid::softmax_forward_kernel<T>{classes, x, y});
}

/// dx_j = y_j (dy_j - Σ_k dy_k y_k), from the softmax y. dx may be dy.
template <class T, GridDevice D>
void softmax_backward(D d, index_t rows, index_t classes, const T* y, const T* dy, T* dx) {
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    flop_counter::count(4 * n, 3 * n * sizeof(T));
    grid::for_rows<grid::sum_type<T>>(d, rows, classes, grid::softmax_backward_kernel<T>{classes, y, dy, dx});
}

/// Of rows whose label is not `ignore_index`, Σ_i class_weights[label_i], or their number where class_weights is null,
/// into *out (device memory): what a mean is divided by.
template <class S, GridDevice D>
void label_weights_into(D d, index_t rows, index_t classes, const std::int32_t* labels, const S* class_weights,
                        double* out, std::int32_t ignore_index = nothing_ignored) {
    flop_counter::count(static_cast<double>(rows), static_cast<double>(rows) * (sizeof(std::int32_t) + sizeof(S)));
    grid::sum_into(d, out, rows, grid::term_label_weight<S>{classes, class_weights, ignore_index}, labels);
}

/// Cross-entropy of softmax(logits) with integer labels, and its gradient; arguments as on the host. `divisor`: device
/// memory with what `scale` is divided by, the gradient is NaN unless it is above 0; or null.
template <class T, class S, GridDevice D>
void softmax_cross_entropy(D d, index_t rows, index_t classes, const T* logits, const std::int32_t* labels, S smoothing,
                           S* loss_per_row, T* dlogits, S scale, const S* class_weights = nullptr,
                           const double* divisor = nullptr, std::int32_t ignore_index = nothing_ignored) {
    require(smoothing >= 0 && smoothing <= 1, "cross-entropy: label smoothing ", smoothing, " is not in [0, 1]");
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    flop_counter::count((dlogits ? 6 : 4) * n, (dlogits ? 2 : 1) * n * sizeof(T));
    grid::for_rows<S>(d, rows, classes,
                      grid::cross_entropy_kernel<T, S>{classes, logits, labels, smoothing, loss_per_row, dlogits, scale,
                                                       class_weights, divisor, ignore_index});
}

}  // namespace cairn
