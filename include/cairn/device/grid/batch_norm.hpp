#pragma once
// Batch normalisation on a grid device: same names, arguments and formulas as device/cpu/batch_norm.hpp.
//   statistics  sums of x - x₀ and (x - x₀)², x₀ the first row: shifted, so that a large mean costs no digits.
//   apply       y = act(gamma (x - mean) invstd + beta [+ skip]), one bit an element for backward
//   sums        dbeta = Σ g, dgamma = invstd Σ g (x - mean), g = dy where the bit is set
//   gradient    dx, and dskip = g
// Memory traffic: statistics x; apply x, y (skip, bits); sums dy, x (bits); gradient dy, x, dx
// (dskip, bits).

#include <cairn/device/activation_kind.hpp>
#include <cairn/device/grid/channels.hpp>
#include <cairn/device/grid/per_example_gradients.hpp>
#include <cairn/device/wide_moments.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

/// x - x₀ and its square.
template <class T, class S>
struct moments_op {
    static constexpr int ahead = packets_ahead<T>(1);
    const T* x;

    template <int Lanes>
    struct coefficients {
        S origin[Lanes];
        CAIRN_HD void set(int j, index_t channel, const moments_op& op) { origin[j] = static_cast<S>(op.x[channel]); }
        CAIRN_HD void set_all(index_t channel, const moments_op& op) {
            const auto p = *reinterpret_cast<const packet<T, Lanes>*>(op.x + channel);
            for (int j = 0; j < Lanes; ++j) origin[j] = static_cast<S>(p.v[j]);
        }
    };

    template <int Lanes>
    using loaded = packet<T, Lanes>;
    template <int Lanes>
    CAIRN_HD loaded<Lanes> load(index_t at) const {
        return *reinterpret_cast<const packet<T, Lanes>*>(x + at);
    }
    template <int Lanes>
    CAIRN_HD void add(const loaded<Lanes>& p, const coefficients<Lanes>& c, S (&first)[Lanes],
                      S (&second)[Lanes]) const {
        for (int j = 0; j < Lanes; ++j) {
            const S v = static_cast<S>(p.v[j]) - c.origin[j];
            first[j] += v;
            second[j] += v * v;
        }
    }
};

template <class T, class S, class V>
struct moments_finish {
    index_t rows, channels;
    const T* x;
    S* mean;
    V* var;
    CAIRN_HD void operator()(index_t c, double first, double second) const {
        const double n = static_cast<double>(rows), shift = first / n;
        double m = static_cast<double>(x[c]) + shift, v = second / n - shift * shift;
        if (second - second != 0) {
            const detail::wide_moments wide = detail::wide_moments_of(rows, channels, x + c);
            m = wide.mean;
            v = wide.deviation * wide.deviation;
        }
        mean[c] = static_cast<S>(m);
        var[c] = static_cast<V>(v < 0 ? 0 : v);
    }
};

/// dy where bit `lane` of `bits` is set; slope dy elsewhere (0 for relu).
template <class S>
CAIRN_HD inline S masked(S dy, unsigned bits, int lane, S slope) {
    return bits >> lane & 1u ? dy : leaked(slope, dy);
}

template <class T, class S>
struct norm_apply_op {
    const T *x, *skip;
    const S *mean, *invstd, *gamma, *beta;
    bool sign;
    S slope;
    T* y;
    std::uint8_t* bits;

    static constexpr int ahead = packets_ahead<T>(2);
    struct loaded {
        T x[packet_lanes], skip[packet_lanes];
    };
    struct coefficients {
        S center[packet_lanes], scale[packet_lanes], shift[packet_lanes];
        CAIRN_HD void set(int j, index_t c, const norm_apply_op& op) {
            center[j] = op.mean[c];
            scale[j] = op.gamma[c] * op.invstd[c];
            shift[j] = op.beta[c];
        }
        CAIRN_HD void set_all(index_t c, const norm_apply_op& op) {
            S inverse[packet_lanes];
            load_eight(op.mean + c, center);
            load_eight(op.invstd + c, inverse);
            load_eight(op.gamma + c, scale);
            load_eight(op.beta + c, shift);
            for (int j = 0; j < packet_lanes; ++j) scale[j] *= inverse[j];
        }
    };

    CAIRN_HD loaded load(index_t at, bool whole, int count) const {
        loaded in;
        load_packet(x + at, whole, count, in.x);
        if (skip) load_packet(skip + at, whole, count, in.skip);
        return in;
    }

    CAIRN_HD void store(index_t at, bool whole, int count, const loaded& in, const coefficients& c) const {
        T out[packet_lanes];
        unsigned kept = 0;
        for (int j = 0; j < packet_lanes; ++j) {
            S v = (static_cast<S>(in.x[j]) - c.center[j]) * c.scale[j] + c.shift[j];
            if (skip) v += static_cast<S>(in.skip[j]);
            if (sign) {
                const bool on = !(v <= 0);
                kept |= (on ? 1u : 0u) << j;
                v = on ? v : leaked(slope, v);
            }
            out[j] = static_cast<T>(v);
        }
        store_packet(y + at, whole, count, out);
        if (bits) bits[at / packet_lanes] = static_cast<std::uint8_t>(kept);
    }
};

template <class T, class S>
struct norm_sums_op {
    static constexpr int ahead = packets_ahead<T>(2);
    const T *dy, *x;
    const std::uint8_t* bits;
    S slope;
    const S* mean;

    template <int Lanes>
    struct coefficients {
        S center[Lanes];
        CAIRN_HD void set(int j, index_t channel, const norm_sums_op& op) { center[j] = op.mean[channel]; }
        CAIRN_HD void set_all(index_t channel, const norm_sums_op& op) { load_eight(op.mean + channel, center); }
    };

    template <int Lanes>
    struct loaded {
        packet<T, Lanes> dy, x;
        unsigned kept;
    };
    template <int Lanes>
    CAIRN_HD loaded<Lanes> load(index_t at) const {
        return {*reinterpret_cast<const packet<T, Lanes>*>(dy + at), *reinterpret_cast<const packet<T, Lanes>*>(x + at),
                bits ? bits[at / packet_lanes] >> (at % packet_lanes) : ~0u};
    }
    template <int Lanes>
    CAIRN_HD void add(const loaded<Lanes>& in, const coefficients<Lanes>& c, S (&first)[Lanes],
                      S (&second)[Lanes]) const {
        for (int j = 0; j < Lanes; ++j) {
            const S d = masked(static_cast<S>(in.dy.v[j]), in.kept, j, slope);
            first[j] += d;
            second[j] += d * (static_cast<S>(in.x.v[j]) - c.center[j]);
        }
    }
};

template <class S>
struct norm_sums_finish {
    const S* invstd;
    S *dgamma, *dbeta;
    CAIRN_HD void operator()(index_t c, double first, double second) const {
        dbeta[c] = static_cast<S>(first);
        dgamma[c] = static_cast<S>(second * static_cast<double>(invstd[c]));
    }
};

template <class T, class S>
struct norm_gradient_op {
    const T *dy, *x;
    const std::uint8_t* bits;
    S slope, share;  // share = 1 / rows
    const S *mean, *invstd, *gamma, *dgamma, *dbeta;
    T *dx, *dskip;

    static constexpr int ahead = packets_ahead<T>(2);
    struct loaded {
        T dy[packet_lanes], x[packet_lanes];
        unsigned kept;
    };
    struct coefficients {
        S center[packet_lanes], a[packet_lanes], b[packet_lanes], c0[packet_lanes];
        CAIRN_HD void set(int j, index_t c, const norm_gradient_op& op) {
            combine(j, op.mean[c], op.invstd[c], op.gamma[c], op.dgamma[c], op.dbeta[c], op.share);
        }
        CAIRN_HD void set_all(index_t c, const norm_gradient_op& op) {
            S middle[packet_lanes], inverse[packet_lanes], scale[packet_lanes], dscale[packet_lanes],
                dshift[packet_lanes];
            load_eight(op.mean + c, middle);
            load_eight(op.invstd + c, inverse);
            load_eight(op.gamma + c, scale);
            load_eight(op.dgamma + c, dscale);
            load_eight(op.dbeta + c, dshift);
            for (int j = 0; j < packet_lanes; ++j)
                combine(j, middle[j], inverse[j], scale[j], dscale[j], dshift[j], op.share);
        }
        CAIRN_HD void combine(int j, S middle, S inverse, S scale, S dscale, S dshift, S part) {
            center[j] = middle;
            a[j] = scale * inverse;  // dx = a (g + c0 + (x - mean) b): of a large deviation, a b would be 0
            b[j] = -inverse * dscale * part;
            c0[j] = -dshift * part;
        }
    };

    CAIRN_HD loaded load(index_t at, bool whole, int count) const {
        loaded in;
        load_packet(dy + at, whole, count, in.dy);
        load_packet(x + at, whole, count, in.x);
        in.kept = bits ? bits[at / packet_lanes] : ~0u;
        return in;
    }

    CAIRN_HD void store(index_t at, bool whole, int count, const loaded& in, const coefficients& c) const {
        T out[packet_lanes], kept_dy[packet_lanes];
        for (int j = 0; j < packet_lanes; ++j) {
            const S d = masked(static_cast<S>(in.dy[j]), in.kept, j, slope);
            kept_dy[j] = static_cast<T>(d);
            out[j] = static_cast<T>(((static_cast<S>(in.x[j]) - c.center[j]) * c.b[j] + (d + c.c0[j])) * c.a[j]);
        }
        store_packet(dx + at, whole, count, out);
        if (dskip) store_packet(dskip + at, whole, count, kept_dy);
    }
};

inline bool has_sign(activation act) {
    require(act == activation::none || act == activation::relu || act == activation::leaky_relu,
            "batch norm: ", name_of(act), " cannot be fused; use none, relu or leaky_relu and a layer of its own");
    return act != activation::none;
}

}  // namespace grid

/// mean (channels) and var (channels, biased: divided by rows) of x (rows, channels). 4 flops per element. rows ≥ 1.
template <class T, class S, class V, GridDevice D>
void batch_statistics(D d, index_t rows, index_t channels, const T* x, S* mean, V* var) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    flop_counter::count(4 * n, n * sizeof(T));
    grid::channel_sums<S>(d, rows, channels, grid::packets_fit(x), grid::moments_op<T, S>{x},
                          grid::moments_finish<T, S, V>{rows, channels, x, mean, var});
}

/// y = act(gamma (x - mean) invstd + beta [+ skip]) over (rows, channels). `skip` may be null; y may be x or skip.
/// bits: a bit an element, in whole packs, for backward, or null.
template <class T, class S, GridDevice D>
void batch_norm_apply(D d, index_t rows, index_t channels, const T* x, const T* skip, const S* mean, const S* invstd,
                      const S* gamma, const S* beta, activation act, S slope, T* y, std::uint8_t* bits) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = grid::has_sign(act);
    flop_counter::count((3 + (skip ? 1 : 0) + (sign ? 1 : 0)) * n,
                        (skip ? 3 : 2) * n * sizeof(T) + (sign && bits ? n / 8 : 0));
    grid::for_channels(d, rows, channels, grid::packets_fit(x, skip, y),
                       grid::norm_apply_op<T, S>{x, skip, mean, invstd, gamma, beta, sign,
                                                 act == activation::relu ? S{} : slope, y, sign ? bits : nullptr});
}

/// dgamma and dbeta (channels) from dy, x (rows, channels) and the bits of forward (not read without activation).
template <class T, class S, GridDevice D>
void batch_norm_sums(D d, index_t rows, index_t channels, const T* dy, const std::uint8_t* bits, activation act,
                     S slope, const T* x, const S* mean, const S* invstd, S* dgamma, S* dbeta) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = grid::has_sign(act);
    flop_counter::count((sign ? 5 : 4) * n, 2 * n * sizeof(T) + (sign ? n / 8 : 0));
    grid::channel_sums<S>(
        d, rows, channels, grid::packets_fit(dy, x),
        grid::norm_sums_op<T, S>{dy, x, sign ? bits : nullptr, act == activation::relu ? S{} : slope, mean},
        grid::norm_sums_finish<S>{invstd, dgamma, dbeta});
}

/// dx = gamma invstd (g - dbeta / n - (x - mean) invstd dgamma / n) and, unless null, dskip = g, over (rows, channels).
/// dx and dskip may each be dy or x, not the same.
template <class T, class S, GridDevice D>
void batch_norm_gradient(D d, index_t rows, index_t channels, const T* dy, const std::uint8_t* bits, activation act,
                         S slope, const T* x, const S* mean, const S* invstd, const S* gamma, const S* dgamma,
                         const S* dbeta, T* dx, T* dskip) {
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const bool sign = grid::has_sign(act);
    flop_counter::count(5 * n, (dskip ? 4 : 3) * n * sizeof(T) + (sign ? n / 8 : 0));
    grid::for_channels(
        d, rows, channels, grid::packets_fit(dy, x, dx, dskip),
        grid::norm_gradient_op<T, S>{dy, x, sign ? bits : nullptr, act == activation::relu ? S{} : slope,
                                     S(1) / static_cast<S>(rows), mean, invstd, gamma, dgamma, dbeta, dx, dskip});
}

}  // namespace cairn
