#pragma once
// Pooling on a grid device: same names, arguments and results as device/cpu/pool.hpp. Forward: a thread has one result
// of one or eight channels; backward: one element of x, whose windows it adds up, so that there are no atomics and one
// order of summation.

#include <cairn/device/grid/channels.hpp>
#include <cairn/device/pool_geometry.hpp>

namespace cairn {

namespace grid {

/// A pool_axis that can travel to a device: windows as formulas instead of lists.
struct window_axis {
    index_t in, out, kernel, stride, pad;
    bool adaptive;

    explicit window_axis(const pool_axis& a)
        : in(a.in), out(a.out), kernel(a.kernel), stride(a.stride), pad(a.pad), adaptive(a.is_adaptive) {}

    CAIRN_HD index_t start(index_t o) const { return adaptive ? o * in / out : o * stride - pad; }
    CAIRN_HD index_t begin(index_t o) const { return start(o) > 0 ? start(o) : 0; }
    CAIRN_HD index_t end(index_t o) const {
        const index_t e = adaptive ? ((o + 1) * in + out - 1) / out : start(o) + kernel;
        return e < in ? e : in;
    }
    /// Windows [first, last) cover position i.
    CAIRN_HD index_t first(index_t i) const {
        if (adaptive) return i * out / in;
        const index_t room = i + pad - kernel;
        return room < 0 ? 0 : room / stride + 1;
    }
    CAIRN_HD index_t last(index_t i) const {
        const index_t l = adaptive ? ((i + 1) * out + in - 1) / in : (i + pad) / stride + 1;
        return l < out ? l : out;
    }
};

struct windows {
    index_t n, channels;
    window_axis d, h, w;
    bool count_pad;

    explicit windows(const pool_geometry& g)
        : n(g.n), channels(g.channels), d(g.axis[0]), h(g.axis[1]), w(g.axis[2]), count_pad(g.count_pad) {}

    CAIRN_HD double divisor(index_t od, index_t oh, index_t ow) const {
        if (count_pad) return static_cast<double>(d.kernel * h.kernel * w.kernel);
        return static_cast<double>((d.end(od) - d.begin(od)) * (h.end(oh) - h.begin(oh)) * (w.end(ow) - w.begin(ow)));
    }
};

/// Where item i of (n, d, h, w, groups of channels) lies.
struct place {
    index_t n, d, h, w, c;
    CAIRN_HD place(index_t i, index_t depth, index_t height, index_t width, index_t groups) {
        const auto take = [&i](index_t extent) {
            const index_t rest = remainder(i, extent);
            i = quotient(i, extent);
            return rest;
        };
        c = take(groups);
        w = take(width);
        h = take(height);
        d = take(depth);
        n = i;
    }
};

/// Runs Op::at<Lanes>(place) for every result of a pooling, `Back`: for every element of its input.
template <int Lanes, bool Back, class Op>
struct pool_pass {
    Op op;

    CAIRN_HD void operator()(index_t i) const {
        const windows& g = op.g;
        op.template at<Lanes>(
            place(i, Back ? g.d.in : g.d.out, Back ? g.h.in : g.h.out, Back ? g.w.in : g.w.out, g.channels / Lanes));
    }
};

template <bool Back, class Op, GridDevice D>
void for_pool(D d, const pool_geometry& g, bool aligned, Op op) {
    const index_t elements = Back ? g.x_elements() : g.y_elements();
    if (aligned && g.channels % packet_lanes == 0)
        for_indices(d, elements / packet_lanes, pool_pass<packet_lanes, Back, Op>{op});
    else
        for_indices(d, elements, pool_pass<1, Back, Op>{op});
}

template <class T, class Code>
struct max_pool_op {
    windows g;
    const T* x;
    T* y;
    Code* code;

    template <int Lanes>
    CAIRN_HD void at(const place& p) const {
        using S = sum_type<T>;
        packet<T, Lanes> best{};
        packet<Code, Lanes> which{};
        bool first = true;
        for (index_t id = g.d.begin(p.d); id < g.d.end(p.d); ++id)
            for (index_t ih = g.h.begin(p.h); ih < g.h.end(p.h); ++ih)
                for (index_t iw = g.w.begin(p.w); iw < g.w.end(p.w); ++iw) {
                    const Code here = static_cast<Code>(
                        ((id - g.d.start(p.d)) * g.h.kernel + ih - g.h.start(p.h)) * g.w.kernel + iw - g.w.start(p.w));
                    const auto v = *reinterpret_cast<const packet<T, Lanes>*>(
                        x + (((p.n * g.d.in + id) * g.h.in + ih) * g.w.in + iw) * g.channels + p.c * Lanes);
                    for (int j = 0; j < Lanes; ++j) {
                        const S value = static_cast<S>(v.v[j]);  // greater, or NaN: a NaN stays, as nothing is greater
                        if (first || value > static_cast<S>(best.v[j]) || value != value) {
                            best.v[j] = v.v[j];
                            which.v[j] = here;
                        }
                    }
                    first = false;
                }
        const index_t out = (((p.n * g.d.out + p.d) * g.h.out + p.h) * g.w.out + p.w) * g.channels + p.c * Lanes;
        *reinterpret_cast<packet<T, Lanes>*>(y + out) = best;
        if (code) *reinterpret_cast<packet<Code, Lanes>*>(code + out) = which;
    }
};

/// What a pooling's backward adds to element p from window (od, oh, ow): Sum::of(first element of y there, lane, …).
template <class T, class Share>
struct pool_back_op {
    windows g;
    Share share;
    T* dx;

    template <int Lanes>
    CAIRN_HD void at(const place& p) const {
        using S = sum_type<T>;
        S sum[Lanes]{};
        for (index_t od = g.d.first(p.d); od < g.d.last(p.d); ++od)
            for (index_t oh = g.h.first(p.h); oh < g.h.last(p.h); ++oh)
                for (index_t ow = g.w.first(p.w); ow < g.w.last(p.w); ++ow) {
                    const index_t out =
                        (((p.n * g.d.out + od) * g.h.out + oh) * g.w.out + ow) * g.channels + p.c * Lanes;
                    share.template add<Lanes>(g, p, od, oh, ow, out, sum);
                }
        packet<T, Lanes> result;
        for (int j = 0; j < Lanes; ++j) result.v[j] = static_cast<T>(sum[j]);
        *reinterpret_cast<packet<T, Lanes>*>(dx + (((p.n * g.d.in + p.d) * g.h.in + p.h) * g.w.in + p.w) * g.channels +
                                             p.c * Lanes) = result;
    }
};

template <class T, class Code>
struct max_share {
    const T* dy;
    const Code* code;

    template <int Lanes>
    CAIRN_HD void add(const windows& g, const place& p, index_t od, index_t oh, index_t ow, index_t out,
                      sum_type<T> (&sum)[Lanes]) const {
        const Code here = static_cast<Code>(((p.d - g.d.start(od)) * g.h.kernel + p.h - g.h.start(oh)) * g.w.kernel +
                                            p.w - g.w.start(ow));
        for (int j = 0; j < Lanes; ++j)
            if (code[out + j] == here) sum[j] += static_cast<sum_type<T>>(dy[out + j]);
    }
};

template <class T>
struct average_share {
    const T* dy;

    template <int Lanes>
    CAIRN_HD void add(const windows& g, const place&, index_t od, index_t oh, index_t ow, index_t out,
                      sum_type<T> (&sum)[Lanes]) const {
        const auto inverse = static_cast<sum_type<T>>(1 / g.divisor(od, oh, ow));
        for (int j = 0; j < Lanes; ++j) sum[j] += static_cast<sum_type<T>>(dy[out + j]) * inverse;
    }
};

template <class T>
struct average_pool_op {
    windows g;
    const T* x;
    T* y;

    template <int Lanes>
    CAIRN_HD void at(const place& p) const {
        using S = sum_type<T>;
        S sum[Lanes]{};
        for (index_t id = g.d.begin(p.d); id < g.d.end(p.d); ++id)
            for (index_t ih = g.h.begin(p.h); ih < g.h.end(p.h); ++ih)
                for (index_t iw = g.w.begin(p.w); iw < g.w.end(p.w); ++iw) {
                    const auto v = *reinterpret_cast<const packet<T, Lanes>*>(
                        x + (((p.n * g.d.in + id) * g.h.in + ih) * g.w.in + iw) * g.channels + p.c * Lanes);
                    for (int j = 0; j < Lanes; ++j) sum[j] += static_cast<S>(v.v[j]);
                }
        const S inverse = static_cast<S>(1 / g.divisor(p.d, p.h, p.w));
        packet<T, Lanes> result;
        for (int j = 0; j < Lanes; ++j) result.v[j] = static_cast<T>(sum[j] * inverse);
        *reinterpret_cast<packet<T, Lanes>*>(
            y + (((p.n * g.d.out + p.d) * g.h.out + p.h) * g.w.out + p.w) * g.channels + p.c * Lanes) = result;
    }
};

/// A block has the mean of `across` channels of one image; threads / across points at a time.
template <class T>
struct global_average_kernel {
    index_t points, channels;
    int across;
    const T* x;
    T* y;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        using S = sum_type<T>;
        const index_t strips = (channels + across - 1) / across, image = b.block() / strips;
        const index_t c = b.block() % strips * across + b.thread() % across;
        const int lane = static_cast<int>(b.thread()) / across, lanes = static_cast<int>(b.threads()) / across;
        S sum{};
        if (c < channels)
            for (index_t p = lane; p < points; p += lanes)
                sum += static_cast<S>(x[(image * points + p) * channels + c]);
        S* const all = b.template shared<S>();
        all[b.thread()] = sum;
        b.sync();
        if (lane != 0 || c >= channels) return;
        for (int k = 1; k < lanes; ++k) sum += all[k * across + b.thread()];
        y[image * channels + c] = static_cast<T>(sum / static_cast<S>(points));
    }
};

template <class T>
struct global_average_back_kernel {
    index_t points, channels;
    const T* dy;
    T* dx;

    CAIRN_HD void operator()(index_t i) const {
        using S = sum_type<T>;
        const S arrived = static_cast<S>(dy[quotient(i, points * channels) * channels + remainder(i, channels)]);
        dx[i] = static_cast<T>(arrived * (S(1) / static_cast<S>(points)));
    }
};

}  // namespace grid

/// y and code (n, out…, channels) from x (n, in…, channels). code may be null. A NaN in a window is its maximum.
template <class T, class Code, GridDevice D>
void max_pool_forward(D d, const pool_geometry& g, const T* x, T* y, Code* code) {
    flop_counter::count(static_cast<double>(g.n * g.reads() * g.channels),
                        static_cast<double>(g.x_elements()) * sizeof(T) +
                            static_cast<double>(g.y_elements()) * (sizeof(T) + (code ? sizeof(Code) : 0)));
    grid::for_pool<false>(d, g, grid::packets_fit(x, y, code),
                          grid::max_pool_op<T, Code>{grid::windows(g), x, y, code});
}

/// dx (n, in…, channels) from dy and code (n, out…, channels).
template <class T, class Code, GridDevice D>
void max_pool_backward(D d, const pool_geometry& g, const T* dy, const Code* code, T* dx) {
    flop_counter::count(static_cast<double>(g.n * g.reads() * g.channels),
                        static_cast<double>(g.x_elements()) * sizeof(T) +
                            static_cast<double>(g.y_elements()) * (sizeof(T) + sizeof(Code)));
    grid::for_pool<true>(d, g, grid::packets_fit(dx),
                         grid::pool_back_op<T, grid::max_share<T, Code>>{grid::windows(g), {dy, code}, dx});
}

/// y (n, out…, channels) = averages of x (n, in…, channels).
template <class T, GridDevice D>
void average_pool_forward(D d, const pool_geometry& g, const T* x, T* y) {
    const double outputs = static_cast<double>(g.y_elements());
    flop_counter::count(static_cast<double>(g.n * g.reads() * g.channels) + outputs,
                        (static_cast<double>(g.x_elements()) + outputs) * sizeof(T));
    grid::for_pool<false>(d, g, grid::packets_fit(x, y), grid::average_pool_op<T>{grid::windows(g), x, y});
}

/// dx (n, in…, channels) from dy (n, out…, channels).
template <class T, GridDevice D>
void average_pool_backward(D d, const pool_geometry& g, const T* dy, T* dx) {
    flop_counter::count(2 * static_cast<double>(g.n * g.reads() * g.channels),
                        static_cast<double>(g.x_elements() + g.y_elements()) * sizeof(T));
    grid::for_pool<true>(d, g, grid::packets_fit(dx),
                         grid::pool_back_op<T, grid::average_share<T>>{grid::windows(g), {dy}, dx});
}

/// y (n, channels) = mean over the points of x (n, points, channels).
template <class T, GridDevice D>
void global_average_forward(D, index_t n, index_t points, index_t channels, const T* x, T* y) {
    const double elements = static_cast<double>(n) * static_cast<double>(points) * static_cast<double>(channels);
    flop_counter::count(elements + static_cast<double>(n * channels),
                        (elements + static_cast<double>(n * channels)) * sizeof(T));
    if (n * channels == 0) return;
    const int across = channels >= 32 ? 32 : 1, threads = 256;
    D::launch({.blocks = n * ((channels + across - 1) / across),
               .threads = threads,
               .shared = threads * index_t{sizeof(grid::sum_type<T>)}},
              grid::global_average_kernel<T>{points, channels, across, x, y});
}

/// dx (n, points, channels) = dy (n, channels) / points.
template <class T, GridDevice D>
void global_average_backward(D d, index_t n, index_t points, index_t channels, const T* dy, T* dx) {
    const index_t elements = n * points * channels;
    flop_counter::count(static_cast<double>(elements), static_cast<double>(elements + n * channels) * sizeof(T));
    grid::for_indices(d, elements, grid::global_average_back_kernel<T>{points, channels, dy, dx});
}

}  // namespace cairn
