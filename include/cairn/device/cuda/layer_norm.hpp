#pragma once
// Layer normalisation on a grid device: same names, arguments and formulas as device/cpu/layer_norm.hpp. One block a row; dgamma and dbeta are
// sums down the columns (channels.hpp), in one more pass over dy and x.

#include <cairn/device/cuda/channels.hpp>
#include <cairn/device/cuda/example_gradients.hpp>
#include <cairn/device/cuda/softmax.hpp>

#include <cmath>
#include <type_traits>

namespace cairn {

namespace grid {

template <class T, class S>
struct layer_norm_forward_body {
    index features;
    const T* x;
    const S *gamma, *beta;
    S eps;
    T* y;
    S *mean, *invstd;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const T* const in = x + b.block() * features;
        S sum = 0;
        for (index i = b.thread(); i < features; i += b.threads()) sum += static_cast<S>(in[i]);
        const S m = block_sum(b, sum, b.template shared<S>()) / static_cast<S>(features);
        S squares = 0;
        for (index i = b.thread(); i < features; i += b.threads()) {
            const S d = static_cast<S>(in[i]) - m;
            squares += d * d;
        }
        squares = block_sum(b, squares, b.template shared<S>());
        const S inverse = S(1) / std::sqrt(squares / static_cast<S>(features) + eps);
        for (index i = b.thread(); i < features; i += b.threads())
            y[b.block() * features + i] = static_cast<T>((static_cast<S>(in[i]) - m) * inverse * gamma[i] + beta[i]);
        if (b.thread() == 0 && mean) mean[b.block()] = m;
        if (b.thread() == 0 && invstd) invstd[b.block()] = inverse;
    }
};

template <class T, class S>
struct layer_norm_backward_body {
    index features;
    const T *dy, *x;
    const S *mean, *invstd, *gamma;
    T* dx;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index from = b.block() * features;
        const S m = mean[b.block()], s = invstd[b.block()];
        S total = 0, product = 0;
        for (index i = b.thread(); i < features; i += b.threads()) {
            const S g = static_cast<S>(dy[from + i]) * gamma[i];
            total += g;
            product += g * (static_cast<S>(x[from + i]) - m) * s;
        }
        total = block_sum(b, total, b.template shared<S>()) / static_cast<S>(features);
        product = block_sum(b, product, b.template shared<S>()) / static_cast<S>(features);
        for (index i = b.thread(); i < features; i += b.threads()) {
            const S xhat = (static_cast<S>(x[from + i]) - m) * s;
            dx[from + i] = static_cast<T>(s * (static_cast<S>(dy[from + i]) * gamma[i] - total - xhat * product));
        }
    }
};

/// dy and dy x̂, down the columns.
template <class T, class S>
struct layer_norm_sums_op {
    index features;
    const T *dy, *x;
    const S *mean, *invstd;

    template <int Lanes>
    struct coefficients {
        CAIRN_HD void set(int, index, const layer_norm_sums_op&) {}
        CAIRN_HD void set_all(index, const layer_norm_sums_op&) {}
    };

    template <int Lanes>
    CAIRN_HD void add(index at, const coefficients<Lanes>&, S (&first)[Lanes], S (&second)[Lanes]) const {
        const index row = at / features;
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
    CAIRN_HD void operator()(index c, double first, double second) const {
        dbeta[c] = static_cast<S>(first);
        dgamma[c] = static_cast<S>(second);
    }
};

}  // namespace grid

/// y from x (rows, features), gamma and beta (features); y may be x. mean and invstd (rows) for backward, or null.
template <class T, class S, GridDevice D>
void layer_norm_forward(D d, index rows, index features, const T* x, const S* gamma, const S* beta, S eps, T* y,
                        std::type_identity_t<S>* mean, std::type_identity_t<S>* invstd) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    work::count(7 * n, 2 * n * sizeof(T));
    grid::for_rows<S>(d, rows, features,
                      grid::layer_norm_forward_body<T, S>{features, x, gamma, beta, eps, y, mean, invstd});
}

/// dx (rows, features), may be dy, or null where nobody reads it; dgamma, dbeta (features) are set, not added to.
template <class T, class S, GridDevice D>
void layer_norm_backward(D d, index rows, index features, const T* dy, const T* x, const S* mean, const S* invstd,
                         const S* gamma, T* dx, S* dgamma, S* dbeta) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    work::count(13 * n, 3 * n * sizeof(T));
    grid::channel_sums<S>(d, rows, features, grid::packets_fit(dy, x),
                          grid::layer_norm_sums_op<T, S>{features, dy, x, mean, invstd},
                          grid::layer_norm_sums_finish<S>{dgamma, dbeta});  // before dx, which may be dy
    if (dx)
        grid::for_rows<S>(d, rows, features,
                          grid::layer_norm_backward_body<T, S>{features, dy, x, mean, invstd, gamma, dx});
}

}  // namespace cairn
