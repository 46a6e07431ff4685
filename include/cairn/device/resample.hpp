#pragma once
// Grids that are padded or enlarged, channels last: one text for the kernels of all devices. Every result is a weighted
// sum of few elements along each axis, and so is the adjoint: each thread gathers, nothing is added twice at once.
//   same      y[o] = x[o]
//   zeros     y[o] = x[o − pad],  0 beyond the ends,  out = in + 2 pad
//   circular  y[o] = x[(o − pad) mod in],  likewise
//   linear    y[2 i] = ¼ x[i − 1] + ¾ x[i],  y[2 i + 1] = ¾ x[i] + ¼ x[i + 1],  out = 2 in; beyond the ends lies the
//             nearest element, or, on a periodic axis, the one at the other end

#include <cairn/core/for_each.hpp>
#include <cairn/core/parameter.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <array>

namespace cairn {

enum class resampling { same, zeros, circular, linear };

/// Elements along one axis with their weights.
struct axis_taps {
    int count = 0;
    index_t at[4] = {};
    float weight[4] = {};

    CAIRN_HD void add(index_t where, float by) {
        at[count] = where;
        weight[count++] = by;
    }
};

/// See the top of the file.
struct resampled_axis {
    resampling kind = resampling::same;
    index_t in = 1, out = 1, pad = 0;  // pad ≤ in
    bool periodic = false;             // of linear

    /// Elements of x that y[o] is made of.
    CAIRN_HD axis_taps sources(index_t o) const {
        axis_taps taps;
        if (kind == resampling::same) taps.add(o, 1);
        if (kind == resampling::zeros && o >= pad && o < pad + in) taps.add(o - pad, 1);
        if (kind == resampling::circular) taps.add(wrapped(o - pad, in), 1);
        if (kind == resampling::linear) {
            const index_t i = o / 2, other = o % 2 == 0 ? i - 1 : i + 1;
            taps.add(i, 0.75f);
            taps.add(periodic ? wrapped(other, in) : other < 0 ? 0 : other >= in ? in - 1 : other, 0.25f);
        }
        return taps;
    }
    /// Elements of y that x[i] is part of.
    CAIRN_HD axis_taps uses(index_t i) const {
        axis_taps taps;
        if (kind == resampling::same) taps.add(i, 1);
        if (kind == resampling::zeros) taps.add(i + pad, 1);
        if (kind == resampling::circular)
            for (index_t o = i + pad - in; o < out; o += in)
                if (o >= 0) taps.add(o, 1);
        if (kind == resampling::linear)
            for (index_t o = 2 * i - 1; o <= 2 * i + 2; ++o) {
                const float weight = o == 2 * i || o == 2 * i + 1 ? 0.75f : 0.25f;
                if (periodic)
                    taps.add(wrapped(o, out), weight);
                else if (o >= 0 && o < out)
                    taps.add(o, o == 0 || o == out - 1 ? weight + (weight == 0.75f ? 0.25f : 0.0f) : weight);
            }
        return taps;
    }

private:
    static CAIRN_HD index_t wrapped(index_t at, index_t extent) {
        return at < 0 ? at + extent : at >= extent ? at - extent : at;
    }
};

/// Samples of a grid of three axes, of which leading ones may have extent 1.
struct resample_geometry {
    index_t n = 0, channels = 0;
    std::array<resampled_axis, 3> axis;

    index_t points_in() const { return axis[0].in * axis[1].in * axis[2].in; }
    index_t points_out() const { return axis[0].out * axis[1].out * axis[2].out; }
    /// Products a result takes, at most.
    double products() const {
        double all = 1;
        for (const resampled_axis& a : axis) all *= a.kind == resampling::linear ? 2 : 1;
        return all;
    }
};

/// One position of y with all its channels; `Back`: of dx.
template <class T, bool Back>
struct resample_position {
    resample_geometry g;
    const T* from;
    T* to;

    CAIRN_HD void operator()(index_t position) const {
        const auto& [a, b, c] = g.axis;
        const index_t eb = Back ? b.in : b.out, ec = Back ? c.in : c.out, ea = Back ? a.in : a.out;
        const index_t z = position % ec, rest = position / ec, y = rest % eb, sample = rest / eb / ea,
                      x = rest / eb % ea;
        const axis_taps ta = Back ? a.uses(x) : a.sources(x), tb = Back ? b.uses(y) : b.sources(y),
                        tc = Back ? c.uses(z) : c.sources(z);
        const index_t fa = Back ? a.out : a.in, fb = Back ? b.out : b.in, fc = Back ? c.out : c.in;
        using S = weight_of<T>;
        for (index_t channel = 0; channel < g.channels; ++channel) {
            S sum{};
            for (int i = 0; i < ta.count; ++i)
                for (int j = 0; j < tb.count; ++j)
                    for (int k = 0; k < tc.count; ++k) {
                        const index_t at = ((sample * fa + ta.at[i]) * fb + tb.at[j]) * fc + tc.at[k];
                        sum += static_cast<S>(ta.weight[i] * tb.weight[j] * tc.weight[k]) *
                               static_cast<S>(from[at * g.channels + channel]);
                    }
            to[position * g.channels + channel] = static_cast<T>(sum);
        }
    }
};

/// y = of x, or, with `Back`, dx = the adjoint of dy.
template <bool Back, class T, Device D>
void resample(D, const resample_geometry& g, const T* from, T* to) {
    const index_t points = g.n * (Back ? g.points_in() : g.points_out());
    const double in = static_cast<double>(g.n * g.points_in() * g.channels),
                 out = static_cast<double>(g.n * g.points_out() * g.channels);
    const kernel_call call(Back ? "resample back" : "resample", format_name<T>, 2 * g.products() * out,
                           sizeof(T) * (in + out), {g.n, g.points_out(), g.channels});
    if (!on_phantom_rank()) for_indices(D{}, points, resample_position<T, Back>{g, from, to});
}

}  // namespace cairn
