#pragma once
// Softmax and cross-entropy on a grid device: same names, arguments and formulas as device/cpu/softmax.hpp. One block a
// row, in one pass: each thread holds its packets of the row in registers, so that x is read once, an element takes one
// exp, and y or the gradient is written by the same kernel. With the maximum m_t and s_t = Σ exp(x − m_t) of a thread,
//   m = max m_t,   Σ exp(x − m) = Σ s_t exp(m_t − m),   exp(x − m) = exp(x − m_t) exp(m_t − m)
// (Milakov and Gimelshein 2018). Rows of more than 8,192 elements (2,048 where they do not fall into packets of eight)
// go through the registers in pieces, and are read and exponentiated once more for what is written.
// Bytes: x and y; dy, y and dx; x and its gradient, with or without label smoothing.
// Labels out of range cannot throw here: their loss is NaN and their gradient 0.

#include <cairn/device/grid/array_sums.hpp>
#include <cairn/device/grid/channels.hpp>
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

/// A thread's part of a row: packets of Lanes neighbouring elements, `threads` packets apart, a piece at a time;
/// and the sums over all of its pieces until now. Not numbers make the sums not numbers.
template <int Lanes, class T>
struct row_part {
    using S = sum_type<T>;
    static constexpr int held = Lanes == 1 ? 8 : 4;
    static constexpr S lowest = -std::numeric_limits<S>::infinity();

    index_t columns;
    S v[held][Lanes];           // exp(x − base)
    S most = lowest, base = 0;  // the largest x, and the same unless it is -∞
    S sum = 0;                  // Σ exp(x − base)
    S spread = 0, weights = 0;  // Σ w (x − base), Σ w

    /// Elements of a piece, of all threads.
    template <class Block>
    CAIRN_HD static index_t piece(Block& b) {
        return b.threads() * held * Lanes;
    }
    template <class Block>
    CAIRN_HD static index_t place(Block& b, index_t from, int h) {
        return from + (h * b.threads() + b.thread()) * Lanes;
    }

    template <class Block>
    CAIRN_HD void load(Block& b, const T* x, index_t from) {
        for (int h = 0; h < held; ++h) {
            const index_t at = place(b, from, h);
            packet<T, Lanes> p{};
            if (at < columns) p = *reinterpret_cast<const packet<T, Lanes>*>(x + at);
            for (int j = 0; j < Lanes; ++j) v[h][j] = at < columns ? static_cast<S>(p.v[j]) : lowest;
        }
    }

    /// Loads a piece and adds it; weight(k): of column k, asked for with Weighted.
    template <bool Weighted, class Block, class Weight>
    CAIRN_HD void add(Block& b, const T* x, index_t from, const Weight& weight) {
        load(b, x, from);
        const S before = base;
        for (int h = 0; h < held; ++h)
            for (int j = 0; j < Lanes; ++j) most = v[h][j] > most ? v[h][j] : most;
        base = most == lowest ? S{} : most;
        if (from > 0) {
            sum *= std::exp(before - base);
            spread += weights * (before - base);
        }
        for (int h = 0; h < held; ++h) {
            const index_t at = place(b, from, h);
            for (int j = 0; j < Lanes; ++j) {
                if (Weighted && at < columns) {
                    const S w = weight(at + j);
                    spread += w * (v[h][j] - base);
                    weights += w;
                }
                v[h][j] = std::exp(v[h][j] - base);
                sum += v[h][j];
            }
        }
    }

    /// write(packet, first column, exp(x − base of the piece), its factor to exp(x − m)), for all of the row.
    template <class Block, class Write>
    CAIRN_HD void for_packets(Block& b, const T* x, S m, const Write& write) {
        const bool whole = piece(b) >= columns;  // the values are still held
        S scale = most == lowest ? S{} : std::exp(base - m);
        for (index_t from = 0; from < columns; from += piece(b)) {
            if (!whole) {
                load(b, x, from);
                scale = 1;
                for (int h = 0; h < held; ++h)
                    for (int j = 0; j < Lanes; ++j) v[h][j] = std::exp(v[h][j] - m);
            }
            for (int h = 0; h < held; ++h)
                if (const index_t at = place(b, from, h); at < columns) write(at, v[h], scale);
        }
    }
};

/// Adds all pieces of a row; returns the row's maximum m, and Σ exp(x − m) in `sum`.
template <bool Weighted, class Block, class Part, class T, class Weight>
CAIRN_HD typename Part::S add_row(Block& b, Part& mine, const T* x, typename Part::S& sum, const Weight& weight) {
    using S = typename Part::S;
    for (index_t from = 0; from < mine.columns; from += Part::piece(b)) mine.template add<Weighted>(b, x, from, weight);
    const S m = block_max(b, mine.most, b.template shared<S>());
    sum = block_sum(b, mine.sum * std::exp(mine.most - m), b.template shared<S>());
    return m;
}

template <int Lanes, class T>
struct softmax_forward_kernel {
    index_t columns;
    const T* x;
    T* y;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const T* const row = x + b.block() * columns;
        T* const out = y + b.block() * columns;
        row_part<Lanes, T> mine{columns};
        S sum;
        const S m = add_row<false>(b, mine, row, sum, [](index_t) { return S(1); }), inverse = S(1) / sum;
        mine.for_packets(b, row, m, [&](index_t at, const S(&v)[Lanes], S scale) {
            packet<T, Lanes> p;
            for (int j = 0; j < Lanes; ++j) p.v[j] = static_cast<T>(v[j] * (scale * inverse));
            *reinterpret_cast<packet<T, Lanes>*>(out + at) = p;
        });
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

template <int Lanes, class T, class S>
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
        const bool ignored = is_ignored(labels[b.block()], ignore_index);
        const bool known = !ignored && label >= 0 && label < columns;
        const S at_label = known ? static_cast<S>(x[label]) : S{};  // before the gradient is written over it
        const S share = smoothing / static_cast<S>(columns);
        const auto weight = [this](index_t k) { return class_weights ? class_weights[k] : S(1); };
        row_part<Lanes, T> mine{columns};
        S sum, spread = 0, weights = 0;  // Σ exp(x − m), Σ w (x − m), Σ w
        S m;
        if (smoothing > 0) {
            m = add_row<true>(b, mine, x, sum, weight);
            spread = block_sum(b, mine.spread + mine.weights * (mine.base - m), b.template shared<S>());
            weights = class_weights ? block_sum(b, mine.weights, b.template shared<S>()) : static_cast<S>(columns);
        } else {
            m = add_row<false>(b, mine, x, sum, weight);
        }
        const S hit = known ? (S(1) - smoothing) * weight(label) : S{}, total = hit + share * weights;
        if (b.thread() == 0)
            loss[b.block()] = known     ? -hit * (at_label - m) - share * spread + total * std::log(sum)
                              : ignored ? S{}
                                        : std::numeric_limits<S>::quiet_NaN();
        if (!dlogits) return;
        const S part = divisor ? static_cast<S>(*divisor > 0 ? static_cast<double>(scale) / *divisor
                                                             : std::numeric_limits<double>::quiet_NaN())
                               : scale;
        const S factor = part * total / sum;
        b.sync();  // dlogits may be logits: all threads have read at_label
        mine.for_packets(b, x, m, [&](index_t at, const S(&v)[Lanes], S to_m) {
            packet<T, Lanes> p;
            for (int j = 0; j < Lanes; ++j) {
                const S g =
                    v[j] * (to_m * factor) - part * share * weight(at + j) - (at + j == label ? part * hit : S{});
                p.v[j] = static_cast<T>(known ? g : S{});
            }
            *reinterpret_cast<packet<T, Lanes>*>(dlogits + from + at) = p;
        });
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

/// A block a row, of as few threads as hold it.
template <int Lanes, class T, GridDevice D, class Body>
void for_parts(D, index_t rows, index_t columns, Body body) {
    constexpr index_t of_warp = warp_threads * row_part<Lanes, T>::held * Lanes;
    const int threads = static_cast<int>(std::clamp<index_t>((columns + of_warp - 1) / of_warp, 1, 8)) * warp_threads;
    if (rows > 0) D::launch({.blocks = rows, .threads = threads, .shared = row_scratch<sum_type<T>>(threads)}, body);
}

}  // namespace grid

/// y = softmax of each row. y may be x.
template <class T, GridDevice D>
void softmax_forward(D d, index_t rows, index_t classes, const T* x, T* y) {
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    flop_counter::count(5 * n, 2 * n * sizeof(T));
    grid::in_lanes(classes, grid::packets_fit(x, y), [&]<int Lanes>(grid::lane_count<Lanes>) {
        grid::for_parts<Lanes, T>(d, rows, classes, grid::softmax_forward_kernel<Lanes, T>{classes, x, y});
    });
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
    grid::in_lanes(classes, grid::packets_fit(logits, dlogits), [&]<int Lanes>(grid::lane_count<Lanes>) {
        grid::for_parts<Lanes, T>(
            d, rows, classes,
            grid::cross_entropy_kernel<Lanes, T, S>{classes, logits, labels, smoothing, loss_per_row, dlogits, scale,
                                                    class_weights, divisor, ignore_index});
    });
}

namespace grid {

/// Loss of an element, NaN for a target outside [0, 1], and its gradient.
template <class T>
struct logistic_loss {
    const T *x, *t;
    T scale;
    T* gradient;
    CAIRN_HD void operator()(index_t i, double (&sum)[1]) const {
        const T logit = x[i], target = t[i], u = std::exp(logit < 0 ? logit : -logit), larger = T(1) / (1 + u);
        gradient[i] = scale * ((logit < 0 ? u * larger : larger) - target);
        const T loss = (logit > 0 ? logit : T(0)) - logit * target + std::log1p(u);
        sum[0] += static_cast<double>(target >= 0 && target <= 1 ? loss : std::numeric_limits<T>::quiet_NaN());
    }
};

}  // namespace grid

/// Cross-entropy of sigmoid(x) with targets in [0, 1], and its gradient; arguments as on the host, *sum in device
/// memory. NaN for a target outside.
template <class T, GridDevice D>
void logistic_cross_entropy(D d, index_t rows, index_t columns, const T* x, const T* t, T scale, T* gradient,
                            double* sum) {
    const index_t n = rows * columns;
    flop_counter::count(8.0 * static_cast<double>(n), 3.0 * static_cast<double>(n) * sizeof(T));
    grid::sum_indices<1>(d, n, grid::logistic_loss<T>{x, t, scale, gradient}, sum);
}

}  // namespace cairn
