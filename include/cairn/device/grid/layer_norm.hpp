#pragma once
// Layer normalisation on a grid device: same names, arguments and formulas as device/cpu/layer_norm.hpp. Threads read a
// row from memory once and then from the cache, eight elements at a time where they lie so; backward is one pass, in
// which each block adds up the shares of its rows in dgamma and dbeta.
// Bytes: x and y; dy, x, dx (added), and two numbers a column for at least eight rows.

#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/per_example_gradients.hpp>
#include <cairn/device/grid/softmax.hpp>
#include <cairn/device/wide_moments.hpp>

#include <cmath>
#include <type_traits>

namespace cairn {

namespace grid {

/// Lanes elements in pieces of at most 16 bytes.
template <int Lanes, class T>
inline constexpr int lanes_of_piece = Lanes * sizeof(T) > 16 ? static_cast<int>(16 / sizeof(T)) : Lanes;

/// Lanes elements at `from`, as S.
template <int Lanes, class S, class T>
CAIRN_HD inline packet<S, Lanes> lanes_at(const T* from) {
    constexpr int each = lanes_of_piece<Lanes, T>;
    packet<S, Lanes> v;
    for (int k = 0; k < Lanes; k += each) {
        const auto p = *reinterpret_cast<const packet<T, each>*>(from + k);
        for (int j = 0; j < each; ++j) v.v[k + j] = static_cast<S>(p.v[j]);
    }
    return v;
}
template <int Lanes, class S>
CAIRN_HD inline void store_lanes(const packet<S, Lanes>& v, S* to) {
    constexpr int each = lanes_of_piece<Lanes, S>;
    for (int k = 0; k < Lanes; k += each) {
        packet<S, each> p;
        for (int j = 0; j < each; ++j) p.v[j] = v.v[k + j];
        *reinterpret_cast<packet<S, each>*>(to + k) = p;
    }
}

/// Rows over teams of threads: a warp has a row of up to 1,024 elements and waits for no other, a block longer ones.
template <int Lanes>
struct row_teams {
    index_t rows, features;
    int across;  // threads of a team

    row_teams(index_t all, index_t width) : rows(all), features(width), across(width <= 1024 ? warp_threads : 256) {}
    CAIRN_HD int teams() const { return across == warp_threads ? 4 : 1; }  // of a block
    int threads() const { return teams() * across; }
    template <class Block>
    CAIRN_HD index_t team(Block& b) const {
        return across == warp_threads ? b.thread() / warp_threads : 0;
    }
    /// A thread's number in its team.
    template <class Block>
    CAIRN_HD index_t lane(Block& b) const {
        return b.thread() & (across - 1);
    }

    /// Σ of v over the threads of each team.
    template <class Block, class S>
    CAIRN_HD S sum(Block& b, S v) const {
        return across == warp_threads ? warp_sum(b, v) : block_sum(b, v, b.template shared<S>());
    }
    /// use(i, load(i)) for the packets of a row that are this thread's, i its first element, four being loaded before
    /// the first is used.
    template <class Block, class Load, class Use>
    CAIRN_HD void over(Block& b, const Load& load, const Use& use) const {
        const index_t step = index_t{across} * Lanes;
        for (index_t from = lane(b) * Lanes; from < features; from += 4 * step) {
            decltype(load(from)) in[4];
            CAIRN_UNROLL
            for (int k = 0; k < 4; ++k)
                if (from + k * step < features) in[k] = load(from + k * step);
            CAIRN_UNROLL
            for (int k = 0; k < 4; ++k)
                if (from + k * step < features) use(from + k * step, in[k]);
        }
    }
};

template <int Lanes, class T, class S>
struct layer_norm_forward_kernel {
    row_teams<Lanes> of;
    const T* x;
    const S *gamma, *beta;
    S eps;
    T* y;
    S *mean, *invstd;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t features = of.features, row = b.block() * of.teams() + of.team(b);
        const bool mine = row < of.rows, first = of.lane(b) == 0;
        const T* const in = x + row * features;
        T* const out = y + row * features;
        using packed = packet<T, Lanes>;
        const auto load = [&](index_t i) { return *reinterpret_cast<const packed*>(in + i); };
        S sum = 0, squares = 0;
        if (mine)
            of.over(b, load, [&](index_t, const packed& v) {
                for (int j = 0; j < Lanes; ++j) sum += static_cast<S>(v.v[j]);
            });
        const S m = of.sum(b, sum) / static_cast<S>(features);
        if (mine)
            of.over(b, load, [&](index_t, const packed& v) {
                for (int j = 0; j < Lanes; ++j) {
                    const S off = static_cast<S>(v.v[j]) - m;
                    squares += off * off;
                }
            });
        squares = of.sum(b, squares);
        const bool wide = squares - squares != 0;  // squares that overflow S: each thread has the moments of the row
        const auto moments = wide ? detail::wide_moments_of(features, 1, in) : detail::wide_moments{};
        if (x == y) b.sync();
        if (!mine) return;
        if (wide) return write_wide(b, moments, in, out, first, row);
        const S inverse = S(1) / std::sqrt(squares / static_cast<S>(features) + eps);
        of.over(b, load, [&](index_t i, const packed& v) {
            const auto g = lanes_at<Lanes, S>(gamma + i), shift = lanes_at<Lanes, S>(beta + i);
            packed r;
            for (int j = 0; j < Lanes; ++j)
                r.v[j] = static_cast<T>((static_cast<S>(v.v[j]) - m) * inverse * g.v[j] + shift.v[j]);
            *reinterpret_cast<packed*>(out + i) = r;
        });
        if (first && mean) mean[row] = m;
        if (first && invstd) invstd[row] = inverse;
    }

    template <class Block>
    CAIRN_HD void write_wide(Block& b, const detail::wide_moments& moments, const T* in, T* out, bool first,
                             index_t row) const {
        const double inverse = moments.inverse_deviation(static_cast<double>(eps));
        for (index_t i = of.lane(b); i < of.features; i += of.across) {
            const S xhat = static_cast<S>((static_cast<double>(in[i]) - moments.mean) * inverse);
            out[i] = static_cast<T>(xhat * gamma[i] + beta[i]);
        }
        if (first && mean) mean[row] = static_cast<S>(moments.mean);
        if (first && invstd) invstd[row] = static_cast<S>(inverse);
    }
};

/// dx, and Σ dy and Σ dy x̂ of a block's rows: partial (2, blocks, features). A team adds them up in shared memory, in
/// `partial` where rows are too long for that.
template <int Lanes, class T, class S>
struct layer_norm_backward_kernel {
    static constexpr index_t scratch = 8;  // S of block_sum

    row_teams<Lanes> of;
    bool in_shared;
    const T *dy, *x;
    const S *mean, *invstd, *gamma;
    const T* added;
    T* dx;
    S* partial;

    struct loaded {
        packet<T, Lanes> dy, x;
    };

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using lanes = packet<S, Lanes>;
        const index_t features = of.features, begin = of.rows * b.block() / b.blocks(),
                      end = of.rows * (b.block() + 1) / b.blocks();
        const index_t teams = of.teams(), team = of.team(b);
        S* const all = b.template shared<S>() + scratch;  // (teams, 2, features)
        S* const shift = in_shared ? all + 2 * team * features : partial + b.block() * features;  // Σ dy
        S* const scale = shift + (in_shared ? 1 : b.blocks()) * features;                         // Σ dy x̂
        for (index_t i = of.lane(b) * Lanes; i < features; i += of.across * Lanes)
            store_lanes(lanes{}, shift + i), store_lanes(lanes{}, scale + i);
        for (index_t r = begin; r < end; r += teams) {
            const index_t row = r + team, from = row * features;
            const bool mine = row < end;
            const S m = mine ? mean[row] : S{}, s = mine ? invstd[row] : S{};
            const auto load = [&](index_t i) {
                return loaded{*reinterpret_cast<const packet<T, Lanes>*>(dy + from + i),
                              *reinterpret_cast<const packet<T, Lanes>*>(x + from + i)};
            };
            S total = 0, product = 0;
            if (mine)
                of.over(b, load, [&](index_t i, const loaded& in) {
                    lanes w = lanes_at<Lanes, S>(gamma + i), sum = lanes_at<Lanes, S>(shift + i),
                          scaled = lanes_at<Lanes, S>(scale + i);
                    for (int j = 0; j < Lanes; ++j) {
                        const S d = static_cast<S>(in.dy.v[j]), xhat = (static_cast<S>(in.x.v[j]) - m) * s;
                        sum.v[j] += d;
                        scaled.v[j] += d * xhat;
                        total += d * w.v[j];
                        product += d * w.v[j] * xhat;
                    }
                    store_lanes(sum, shift + i), store_lanes(scaled, scale + i);
                });
            if (!dx) continue;
            total = of.sum(b, total) / static_cast<S>(features);
            product = of.sum(b, product) / static_cast<S>(features);
            if (mine)
                of.over(b, load, [&](index_t i, const loaded& in) {
                    const auto w = lanes_at<Lanes, S>(gamma + i);
                    const auto more = added ? lanes_at<Lanes, S>(added + from + i) : lanes{};
                    packet<T, Lanes> to;
                    for (int j = 0; j < Lanes; ++j) {
                        const S xhat = (static_cast<S>(in.x.v[j]) - m) * s;
                        to.v[j] = static_cast<T>(s * (static_cast<S>(in.dy.v[j]) * w.v[j] - total - xhat * product) +
                                                 (added ? more.v[j] : S{}));
                    }
                    *reinterpret_cast<packet<T, Lanes>*>(dx + from + i) = to;
                });
        }
        if (!in_shared) return;
        b.sync();
        for (index_t i = b.thread(); i < 2 * features; i += b.threads()) {
            S sum = all[i];
            for (index_t k = 1; k < teams; ++k) sum += all[2 * k * features + i];
            const index_t which = i < features ? 0 : 1;
            partial[(which * b.blocks() + b.block()) * features + i - which * features] = sum;
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
void layer_norm_forward(D, index_t rows, index_t features, const T* x, const S* gamma, const S* beta, S eps, T* y,
                        std::type_identity_t<S>* mean, std::type_identity_t<S>* invstd) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    flop_counter::count(7 * n, 2 * n * sizeof(T));
    if (rows == 0) return;
    grid::in_lanes(features, grid::packets_fit(x, y, gamma, beta), [&]<int Lanes>(grid::lane_count<Lanes>) {
        const grid::row_teams<Lanes> of(rows, features);
        D::launch({.blocks = (rows + of.teams() - 1) / of.teams(),
                   .threads = of.threads(),
                   .shared = grid::row_scratch<S>(of.threads())},
                  grid::layer_norm_forward_kernel<Lanes, T, S>{of, x, gamma, beta, eps, y, mean, invstd});
    });
}

/// dx (rows, features), may be dy, or null where it is not read; dgamma, dbeta (features) are set, not added to.
/// `added` (rows, features), or null: a gradient that comes to dx another way.
template <class T, class S, GridDevice D>
void layer_norm_backward(D, index_t rows, index_t features, const T* dy, const T* x, const S* mean, const S* invstd,
                         const S* gamma, T* dx, S* dgamma, S* dbeta, const std::type_identity_t<T>* added = nullptr) {
    const double n = static_cast<double>(rows) * static_cast<double>(features);
    flop_counter::count((added ? 14 : 13) * n, (added ? 4 : 3) * n * sizeof(T));
    const index_t of_block = 8 * grid::row_teams<1>(rows, features).teams(),
                  parts = std::clamp<index_t>(rows / of_block, 1, 512);  // the same on every card
    tensor<S, D> partial({2, parts, features}, memory_category::workspace);
    grid::in_lanes(features, grid::packets_fit(dy, x, dx, added, gamma, partial.data()),
                   [&]<int Lanes>(grid::lane_count<Lanes>) {
                       using kernel = grid::layer_norm_backward_kernel<Lanes, T, S>;
                       const grid::row_teams<Lanes> of(rows, features);
                       const index_t scratch = kernel::scratch * index_t{sizeof(S)},
                                     sums = 2 * of.teams() * features * index_t{sizeof(S)};
                       const bool in_shared = scratch + sums <= grid_size::most_shared;
                       D::launch({.blocks = parts, .threads = of.threads(), .shared = scratch + (in_shared ? sums : 0)},
                                 kernel{of, in_shared, dy, x, mean, invstd, gamma, added, dx, partial.data()});
                   });
    using finish = grid::layer_norm_sums_finish<S>;
    D::launch({.blocks = grid::totals_blocks(features),
               .threads = grid::totals_threads,
               .shared = 2 * grid::totals_threads * index_t{sizeof(double)}},
              grid::channel_totals<S, finish>{features, parts, partial.data(), finish{dgamma, dbeta}});
}

}  // namespace cairn
