#pragma once
// Layer normalisation on a grid device: same names, arguments and formulas as device/cpu/layer_norm.hpp. One block a
// row, whose elements it reads from memory once and then from the cache, eight at a time where they lie so; dgamma and
// dbeta are sums down the columns (channels.hpp), in one more pass over dy and x.

#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/per_example_gradients.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/wide_moments.hpp>

#include <cmath>
#include <type_traits>

namespace cairn {

namespace grid {

/// Lanes elements at `from`, as S.
template <int Lanes, class S, class T>
CAIRN_HD inline packet<S, Lanes> lanes_at(const T* from) {
    const auto p = *reinterpret_cast<const packet<T, Lanes>*>(from);
    packet<S, Lanes> v;
    for (int j = 0; j < Lanes; ++j) v.v[j] = static_cast<S>(p.v[j]);
    return v;
}

/// The same of coefficients, which may lie anywhere.
template <int Lanes, class S>
CAIRN_HD inline packet<S, Lanes> coefficients_at(const S* from) {
    packet<S, Lanes> v;
    if constexpr (Lanes == packet_lanes)
        load_eight(from, v.v);
    else
        v.v[0] = *from;
    return v;
}

/// Calls f(i) for each Lanes neighbouring elements of a row of `features`, a multiple of Lanes, from i on.
template <int Lanes, class Block, class F>
CAIRN_HD inline void for_lanes(Block& b, index_t features, F&& f) {
    for (index_t i = b.thread() * Lanes; i < features; i += b.threads() * Lanes) f(i);
}

template <int Lanes, class T, class S>
struct layer_norm_forward_kernel {
    index_t features;
    const T* x;
    const S *gamma, *beta;
    S eps;
    T* y;
    S *mean, *invstd;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const T* const in = x + b.block() * features;
        T* const out = y + b.block() * features;
        S sum = 0;
        for_lanes<Lanes>(b, features, [&](index_t i) {
            const auto v = lanes_at<Lanes, S>(in + i);
            for (int j = 0; j < Lanes; ++j) sum += v.v[j];
        });
        const S m = block_sum(b, sum, b.template shared<S>()) / static_cast<S>(features);
        S squares = 0;
        for_lanes<Lanes>(b, features, [&](index_t i) {
            const auto v = lanes_at<Lanes, S>(in + i);
            for (int j = 0; j < Lanes; ++j) squares += (v.v[j] - m) * (v.v[j] - m);
        });
        squares = block_sum(b, squares, b.template shared<S>());
        if (squares - squares != 0) return wide_row(b, in, out);
        const S inverse = S(1) / std::sqrt(squares / static_cast<S>(features) + eps);
        for_lanes<Lanes>(b, features, [&](index_t i) {
            const auto v = lanes_at<Lanes, S>(in + i), g = coefficients_at<Lanes>(gamma + i),
                       shift = coefficients_at<Lanes>(beta + i);
            packet<T, Lanes> r;
            for (int j = 0; j < Lanes; ++j) r.v[j] = static_cast<T>((v.v[j] - m) * inverse * g.v[j] + shift.v[j]);
            *reinterpret_cast<packet<T, Lanes>*>(out + i) = r;
        });
        if (b.thread() == 0 && mean) mean[b.block()] = m;
        if (b.thread() == 0 && invstd) invstd[b.block()] = inverse;
    }

    /// A row whose squares overflow S: each thread has its moments.
    template <class Block>
    CAIRN_HD void wide_row(Block& b, const T* in, T* out) const {
        const detail::wide_moments of = detail::wide_moments_of(features, 1, in);
        const double inverse = of.inverse_deviation(static_cast<double>(eps));
        b.sync();  // y may be x
        for (index_t i = b.thread(); i < features; i += b.threads()) {
            const S xhat = static_cast<S>((static_cast<double>(in[i]) - of.mean) * inverse);
            out[i] = static_cast<T>(xhat * gamma[i] + beta[i]);
        }
        if (b.thread() == 0 && mean) mean[b.block()] = static_cast<S>(of.mean);
        if (b.thread() == 0 && invstd) invstd[b.block()] = static_cast<S>(inverse);
    }
};

template <int Lanes, class T, class S>
struct layer_norm_backward_kernel {
    index_t features;
    const T *dy, *x;
    const S *mean, *invstd, *gamma;
    const T* added;
    T* dx;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t from = b.block() * features;
        const S m = mean[b.block()], s = invstd[b.block()];
        S total = 0, product = 0;
        for_lanes<Lanes>(b, features, [&](index_t i) {
            const auto d = lanes_at<Lanes, S>(dy + from + i), v = lanes_at<Lanes, S>(x + from + i),
                       w = coefficients_at<Lanes>(gamma + i);
            for (int j = 0; j < Lanes; ++j) {
                const S g = d.v[j] * w.v[j];
                total += g;
                product += g * (v.v[j] - m) * s;
            }
        });
        total = block_sum(b, total, b.template shared<S>()) / static_cast<S>(features);
        product = block_sum(b, product, b.template shared<S>()) / static_cast<S>(features);
        for_lanes<Lanes>(b, features, [&](index_t i) {
            const auto d = lanes_at<Lanes, S>(dy + from + i), v = lanes_at<Lanes, S>(x + from + i),
                       w = coefficients_at<Lanes>(gamma + i);
            const auto more = added ? lanes_at<Lanes, S>(added + from + i) : packet<S, Lanes>{};
            packet<T, Lanes> r;
            for (int j = 0; j < Lanes; ++j) {
                const S xhat = (v.v[j] - m) * s;
                r.v[j] = static_cast<T>(s * (d.v[j] * w.v[j] - total - xhat * product) + (added ? more.v[j] : S{}));
            }
            *reinterpret_cast<packet<T, Lanes>*>(dx + from + i) = r;
        });
    }
};

/// dy and dy x̂, down the columns.
template <class T, class S>
struct layer_norm_sums_op {
    index_t features;
    const T *dy, *x;
    const S *mean, *invstd;

    template <int Lanes>
    struct coefficients {
        CAIRN_HD void set(int, index_t, const layer_norm_sums_op&) {}
        CAIRN_HD void set_all(index_t, const layer_norm_sums_op&) {}
    };

    template <int Lanes>
    CAIRN_HD void add(index_t at, const coefficients<Lanes>&, S (&first)[Lanes], S (&second)[Lanes]) const {
        const index_t row = at / features;
        const S m = mean[row], s = invstd[row];
        for (int j = 0; j < Lanes; ++j) {
            const S d = static_cast<S>(dy[at + j]);
            first[j] += d;
            second[j] += d * (static_cast<S>(x[at + j]) - m) * s;
        }
    }
};

template <class S>
struct layer_norm_sums_finish {
    S *dgamma, *dbeta;
    CAIRN_HD void operator()(index_t c, double first, double second) const {
        dbeta[c] = static_cast<S>(first);
        dgamma[c] = static_cast<S>(second);
    }
};

}  // namespace grid

/// y from x (rows, features), gamma and beta (features); y may be x. mean and invstd (rows) for backward, or null.
template <class T, class S, GridDevice D>
void layer_norm_forward(D d, index_t rows, index_t features, const T* x, const S* gamma, const S* beta, S eps, T* y,
                        std::type_identity_t<S>* mean, std::type_identity_t<S>* invstd) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    flop_counter::count(7 * n, 2 * n * sizeof(T));
    grid::in_lanes(features, grid::packets_fit(x, y), [&]<int Lanes>(grid::lane_count<Lanes>) {
        grid::for_rows<S>(d, rows, features / Lanes,
                          grid::layer_norm_forward_kernel<Lanes, T, S>{features, x, gamma, beta, eps, y, mean, invstd});
    });
}

/// dx (rows, features), may be dy, or null where it is not read; dgamma, dbeta (features) are set, not added to.
/// `added` (rows, features), or null: a gradient that comes to dx another way.
template <class T, class S, GridDevice D>
void layer_norm_backward(D d, index_t rows, index_t features, const T* dy, const T* x, const S* mean, const S* invstd,
                         const S* gamma, T* dx, S* dgamma, S* dbeta, const std::type_identity_t<T>* added = nullptr) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    flop_counter::count((added ? 14 : 13) * n, (added ? 4 : 3) * n * sizeof(T));
    grid::channel_sums<S>(d, rows, features, grid::packets_fit(dy, x),
                          grid::layer_norm_sums_op<T, S>{features, dy, x, mean, invstd},
                          grid::layer_norm_sums_finish<S>{dgamma, dbeta});  // before dx, which may be dy
    if (!dx) return;
    grid::in_lanes(features, grid::packets_fit(dy, x, dx, added), [&]<int Lanes>(grid::lane_count<Lanes>) {
        grid::for_rows<S>(
            d, rows, features / Lanes,
            grid::layer_norm_backward_kernel<Lanes, T, S>{features, dy, x, mean, invstd, gamma, added, dx});
    });
}

}  // namespace cairn
