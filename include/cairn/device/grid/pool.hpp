#pragma once
// Pooling on a grid device: same names, arguments and results as device/cpu/pool.hpp. Forward: a thread has one result
// of one or eight channels; backward: one element of x, whose windows it adds up, so that there are no atomics and one
// order of summation.

#include <cairn/device/grid/channels.hpp>
#include <cairn/device/pool_geometry.hpp>

namespace cairn {

namespace grid {

/// A pool_axis that can travel to a device: windows as formulas instead of lists. Positions have 32 bits, which fewer
/// registers hold: lists of more would not fit the host.
struct window_axis {
    int in, out, kernel, stride, pad;
    bool adaptive;
    fixed_divisor by_stride;

    explicit window_axis(const pool_axis& a)
        : in(static_cast<int>(a.in)),
          out(static_cast<int>(a.out)),
          kernel(static_cast<int>(a.kernel)),
          stride(static_cast<int>(a.stride)),
          pad(static_cast<int>(a.pad)),
          adaptive(a.is_adaptive),
          by_stride(a.stride) {}

    /// ⌊n of / parts⌋
    CAIRN_HD static int share(int n, int of, int parts) { return static_cast<int>(quotient(index_t{n} * of, parts)); }
    CAIRN_HD int start(int o) const { return adaptive ? share(o, in, out) : o * stride - pad; }
    CAIRN_HD int begin(int o) const { return start(o) > 0 ? start(o) : 0; }
    CAIRN_HD int end(int o) const {
        const int e = adaptive ? in - share(out - o - 1, in, out) : start(o) + kernel;
        return e < in ? e : in;
    }
    /// Windows [first, last) cover position i.
    CAIRN_HD int first(int i) const {
        if (adaptive) return share(i, out, in);
        const int room = i + pad - kernel;
        return room < 0 ? 0 : static_cast<int>(by_stride(room)) + 1;
    }
    CAIRN_HD int last(int i) const {
        const int l = adaptive ? out - share(in - i - 1, out, in) : static_cast<int>(by_stride(i + pad)) + 1;
        return l < out ? l : out;
    }
};

struct windows {
    index_t n, channels;
    window_axis d, h, w;
    bool count_pad;

    explicit windows(const pool_geometry& g)
        : n(g.n), channels(g.channels), d(g.axis[0]), h(g.axis[1]), w(g.axis[2]), count_pad(g.count_pad) {}

    CAIRN_HD double divisor(int od, int oh, int ow) const {
        if (count_pad) return static_cast<double>(index_t{d.kernel} * h.kernel * w.kernel);
        return static_cast<double>(index_t{d.end(od) - d.begin(od)} * (h.end(oh) - h.begin(oh)) *
                                   (w.end(ow) - w.begin(ow)));
    }
};

struct place {
    index_t n;
    int d, h, w, c;  // c: a group of channels
};

/// Runs Op::at<Lanes>(place) for every result of a pooling, `Back`: for every element of its input.
template <int Lanes, bool Back, class Op>
struct pool_pass {
    fixed_divisor depth, height, width, groups;
    Op op;

    explicit pool_pass(const Op& o)
        : depth(Back ? o.g.d.in : o.g.d.out),
          height(Back ? o.g.h.in : o.g.h.out),
          width(Back ? o.g.w.in : o.g.w.out),
          groups(o.g.channels / Lanes),
          op(o) {}

    CAIRN_HD void operator()(index_t i) const {
        place p;
        p.c = groups.take(i);
        p.w = width.take(i);
        p.h = height.take(i);
        p.d = depth.take(i);
        p.n = i;
        op.template at<Lanes>(p);
    }
};

template <bool Back, class Op, GridDevice D>
void for_pool(D d, const pool_geometry& g, bool aligned, const Op& op) {
    const index_t elements = Back ? g.x_elements() : g.y_elements();
    if (aligned && g.channels % packet_lanes == 0)
        for_indices(d, elements / packet_lanes, pool_pass<packet_lanes, Back, Op>(op));
    else
        for_indices(d, elements, pool_pass<1, Back, Op>(op));
}

/// use(elements, number of the position in the window) for the positions of window p, in order: those of a row are
/// loaded four at a time before they are used.
template <int Lanes, class T, class Use>
CAIRN_HD void over_window(const windows& g, const place& p, const T* x, Use&& use) {
    const int d0 = g.d.start(p.d), d1 = g.d.end(p.d), h0 = g.h.start(p.h), h1 = g.h.end(p.h), w0 = g.w.start(p.w),
              w1 = g.w.end(p.w);
    for (int id = d0 < 0 ? 0 : d0; id < d1; ++id)
        for (int ih = h0 < 0 ? 0 : h0; ih < h1; ++ih) {
            const T* const row = x + ((p.n * g.d.in + id) * g.h.in + ih) * g.w.in * g.channels + p.c * Lanes;
            const int number = ((id - d0) * g.h.kernel + ih - h0) * g.w.kernel - w0;
            for (int iw = w0 < 0 ? 0 : w0; iw < w1; iw += 4) {
                packet<T, Lanes> v[4];
                CAIRN_UNROLL
                for (int k = 0; k < 4; ++k)
                    if (iw + k < w1) v[k] = *reinterpret_cast<const packet<T, Lanes>*>(row + (iw + k) * g.channels);
                CAIRN_UNROLL
                for (int k = 0; k < 4; ++k)
                    if (iw + k < w1) use(v[k], number + iw + k);
            }
        }
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
        S best[Lanes]{};
        packet<Code, Lanes> which{};
        bool first = true;
        over_window<Lanes>(g, p, x, [&](const packet<T, Lanes>& v, int number) {
            for (int j = 0; j < Lanes; ++j) {
                const S value = static_cast<S>(v.v[j]);  // greater, or NaN: a NaN stays, as nothing is greater
                if (first || value > best[j] || value != value) {
                    best[j] = value;
                    which.v[j] = static_cast<Code>(number);
                }
            }
            first = false;
        });
        packet<T, Lanes> result;
        for (int j = 0; j < Lanes; ++j) result.v[j] = static_cast<T>(best[j]);
        const index_t out = (((p.n * g.d.out + p.d) * g.h.out + p.h) * g.w.out + p.w) * g.channels + p.c * Lanes;
        *reinterpret_cast<packet<T, Lanes>*>(y + out) = result;
        if (code) *reinterpret_cast<packet<Code, Lanes>*>(code + out) = which;
    }
};

/// dx of element p: Share::add adds what window (od, oh, ow) gives, of which `out` is the first element of y.
template <class T, class Share>
struct pool_back_op {
    windows g;
    Share share;
    T* dx;

    template <int Lanes>
    CAIRN_HD void at(const place& p) const {
        using S = sum_type<T>;
        S sum[Lanes]{};
        const int d1 = g.d.last(p.d), h0 = g.h.first(p.h), h1 = g.h.last(p.h), w0 = g.w.first(p.w), w1 = g.w.last(p.w);
        for (int od = g.d.first(p.d); od < d1; ++od)
            for (int oh = h0; oh < h1; ++oh)
                for (int ow = w0; ow < w1; ++ow) {
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
    CAIRN_HD void add(const windows& g, const place& p, int od, int oh, int ow, index_t out,
                      sum_type<T> (&sum)[Lanes]) const {
        const auto arrived = *reinterpret_cast<const packet<T, Lanes>*>(dy + out);
        const auto from = *reinterpret_cast<const packet<Code, Lanes>*>(code + out);
        const Code here = static_cast<Code>(((p.d - g.d.start(od)) * g.h.kernel + p.h - g.h.start(oh)) * g.w.kernel +
                                            p.w - g.w.start(ow));
        for (int j = 0; j < Lanes; ++j)
            if (from.v[j] == here) sum[j] += static_cast<sum_type<T>>(arrived.v[j]);
    }
};

template <class T>
struct average_share {
    const T* dy;

    template <int Lanes>
    CAIRN_HD void add(const windows& g, const place&, int od, int oh, int ow, index_t out,
                      sum_type<T> (&sum)[Lanes]) const {
        const auto arrived = *reinterpret_cast<const packet<T, Lanes>*>(dy + out);
        const auto inverse = static_cast<sum_type<T>>(1 / g.divisor(od, oh, ow));
        for (int j = 0; j < Lanes; ++j) sum[j] += static_cast<sum_type<T>>(arrived.v[j]) * inverse;
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
        over_window<Lanes>(g, p, x, [&](const packet<T, Lanes>& v, int) {
            for (int j = 0; j < Lanes; ++j) sum[j] += static_cast<S>(v.v[j]);
        });
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
    grid::for_pool<true>(d, g, grid::packets_fit(dy, code, dx),
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
    grid::for_pool<true>(d, g, grid::packets_fit(dy, dx),
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
