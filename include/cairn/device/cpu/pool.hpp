#pragma once
// Maximum and average pooling over windows (device/pool_geometry.hpp), channels last, one to three spatial axes.
//   max forward       y[o] = max over the window, code[o] = position of the maximum in the window, row-major from the
//   uncut window's start
//   max backward      dx[i] = Σ over the windows o that cover i of (code[o] = i - start[o]) dy[o]
//   average forward   y[o] = Σ over the window / size,   size the whole kernel or the part inside the input
//   average backward  dx[i] = Σ over the windows o that cover i of dy[o] / size[o]
// Backward gathers, so that every dx is written once, by one thread, whatever the windows overlap; windows that tile
// the input are spread instead, which reads each dy once. Vector lanes are channels.
// Memory traffic: forward x read, y and codes written; backward dy and codes read, dx written.
// Tested against tests/oracle/pool.hpp.

#include <cairn/core/work.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/pool_geometry.hpp>

#include <cstdint>
#include <vector>

namespace cairn {

namespace detail {

/// Where an element lies relative to the position at hand, and its code in the window.
template <class T>
struct window_element {
    index offset;
    T value;  // max: code; average backward: 1 / size
};

/// The input elements of the window (od, oh, ow), offsets from the start of the image.
template <class T>
void list_window(const pool_geometry& g, index od, index oh, index ow, std::vector<window_element<T>>& list) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const auto at = [](index i) { return static_cast<std::size_t>(i); };
    list.clear();
    for (index id = d.begin[at(od)]; id < d.end[at(od)]; ++id)
        for (index ih = h.begin[at(oh)]; ih < h.end[at(oh)]; ++ih)
            for (index iw = w.begin[at(ow)]; iw < w.end[at(ow)]; ++iw) {
                const index code =
                    ((id - d.start[at(od)]) * h.kernel + ih - h.start[at(oh)]) * w.kernel + iw - w.start[at(ow)];
                list.push_back({((id * h.in + ih) * w.in + iw) * g.channels, static_cast<T>(code)});
            }
}

/// Calls body(n, od, oh, ow, elements, base) for every window: elements[k].offset + base is the start of an element in
/// x. The list of a row's uncut windows is made once and moved along.
template <class T, class Body>
void for_windows(const pool_geometry& g, Body&& body) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const index row_bytes = w.in * g.channels * static_cast<index>(sizeof(T)) * d.kernel * h.kernel;
    parallel_for(g.n * d.out * h.out, std::max<index>(1, (index{1} << 16) / std::max<index>(row_bytes, 1)),
                 [&](index begin, index end) {
                     std::vector<window_element<T>> list;
                     list.reserve(static_cast<std::size_t>(g.window()));
                     for (index row = begin; row < end; ++row) {
                         const index n = row / (d.out * h.out), od = row / h.out % d.out, oh = row % h.out;
                         const index image = n * g.in_points() * g.channels;
                         index listed = -1;  // window whose list this is, while uncut
                         for (index ow = 0; ow < w.out; ++ow) {
                             const auto o = static_cast<std::size_t>(ow);
                             const bool whole = w.end[o] - w.start[o] == w.kernel && w.begin[o] == w.start[o];
                             if (!whole || listed < 0) {
                                 list_window(g, od, oh, ow, list);
                                 listed = whole ? ow : -1;
                             }
                             const index moved =
                                 whole ? (w.start[o] - w.start[static_cast<std::size_t>(listed)]) * g.channels : 0;
                             body(n, od, oh, ow, std::span<const window_element<T>>(list), image + moved);
                         }
                     }
                 });
}

/// Calls body(i, elements, base) for every input position i of every image: elements[k].offset + base is the start of
/// dy of one window that covers it; value(od, oh, ow, id, ih, iw) goes along.
template <class T, class Value, class Body>
void for_covers(const pool_geometry& g, Value&& value, Body&& body) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const auto at = [](index i) { return static_cast<std::size_t>(i); };
    const index row_bytes = w.in * g.channels * static_cast<index>(sizeof(T));
    parallel_for(g.n * d.in * h.in, std::max<index>(1, (index{1} << 16) / std::max<index>(row_bytes, 1)),
                 [&](index begin, index end) {
                     std::vector<window_element<T>> list;
                     for (index row = begin; row < end; ++row) {
                         const index n = row / (d.in * h.in), id = row / h.in % d.in, ih = row % h.in;
                         for (index iw = 0; iw < w.in; ++iw) {
                             list.clear();
                             for (index od = d.first[at(id)]; od < d.last[at(id)]; ++od)
                                 for (index oh = h.first[at(ih)]; oh < h.last[at(ih)]; ++oh)
                                     for (index ow = w.first[at(iw)]; ow < w.last[at(iw)]; ++ow)
                                         list.push_back({((od * h.out + oh) * w.out + ow) * g.channels,
                                                         value(od, oh, ow, id, ih, iw)});
                             body((row * w.in + iw) * g.channels, std::span<const window_element<T>>(list),
                                  n * g.out_points() * g.channels);
                         }
                     }
                 });
}

/// 1 / number of elements that the average over window (od, oh, ow) divides by.
template <class T>
T inverse_window_size(const pool_geometry& g, index od, index oh, index ow) {
    if (g.count_pad) return T(1) / static_cast<T>(g.window());
    const auto length = [](const pool_axis& a, index o) { return a.end[pool_axis::at(o)] - a.begin[pool_axis::at(o)]; };
    return T(1) / static_cast<T>(length(g.axis[0], od) * length(g.axis[1], oh) * length(g.axis[2], ow));
}

}  // namespace detail

/// y and code (n, out…, channels) from x (n, in…, channels). code may be null. A NaN in a window is its maximum. Every
/// window must hold at least one element. 1 flop per element read.
template <class T, class Code>
void max_pool_forward(cpu, const pool_geometry& g, const T* x, T* y, Code* code) {
    const double outputs = static_cast<double>(g.y_elements());
    work::count(static_cast<double>(g.n * g.reads() * g.channels),
                static_cast<double>(g.x_elements()) * sizeof(T) + outputs * (sizeof(T) + (code ? sizeof(Code) : 0)));
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    detail::for_windows<T>(
        g, [&, channels = g.channels](index n, index od, index oh, index ow, auto elements, index base) {
            const index out = (((n * d.out + od) * h.out + oh) * w.out + ow) * channels;
            simd::for_packs<T>(channels, [&](index c, auto count) {
                const T* const from = x + base + c;
                simd::pack<T> best = simd::load(from + elements[0].offset, count), at(elements[0].value);
                for (const auto& e : elements.subspan(1)) {
                    const simd::pack<T> v = simd::load(from + e.offset, count);
                    // v > best, or v is NaN: a NaN stays, as nothing is greater.
                    const simd::mask<T> better = simd::either(simd::greater(v, best), simd::unordered(v));
                    best = simd::select(better, v, best);
                    at = simd::select(better, simd::pack<T>(e.value), at);
                }
                simd::store(y + out + c, best, count);
                if (code) simd::store_codes(code + out + c, at, count);
            });
        });
}

/// dx (n, in…, channels) from dy and code (n, out…, channels). 1 flop per element that a window covers.
template <class T, class Code>
void max_pool_backward(cpu, const pool_geometry& g, const T* dy, const Code* code, T* dx) {
    work::count(static_cast<double>(g.n * g.reads() * g.channels),
                static_cast<double>(g.x_elements()) * sizeof(T) +
                    static_cast<double>(g.y_elements()) * (sizeof(T) + sizeof(Code)));
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    if (g.tiles()) {
        detail::for_windows<T>(
            g, [&, channels = g.channels](index n, index od, index oh, index ow, auto elements, index base) {
                const index out = (((n * d.out + od) * h.out + oh) * w.out + ow) * channels;
                simd::for_packs<T>(channels, [&](index c, auto count) {
                    const simd::pack<T> gradient = simd::load(dy + out + c, count);
                    const simd::pack<T> at = simd::load_codes<T>(code + out + c, count);
                    for (const auto& e : elements)
                        simd::store(dx + base + e.offset + c,
                                    simd::keep(simd::equal(at, simd::pack<T>(e.value)), gradient), count);
                });
            });
        return;
    }
    const auto position = [&](index od, index oh, index ow, index id, index ih, index iw) {
        const auto from = [](const pool_axis& a, index o, index i) { return i - a.start[pool_axis::at(o)]; };
        return static_cast<T>((from(d, od, id) * h.kernel + from(h, oh, ih)) * w.kernel + from(w, ow, iw));
    };
    detail::for_covers<T>(g, position, [=, channels = g.channels](index to, auto elements, index base) {
        simd::for_packs<T>(channels, [&](index c, auto count) {
            simd::pack<T> sum(T{});
            for (const auto& e : elements) {
                const index from = base + e.offset + c;
                sum += simd::keep(simd::equal(simd::load_codes<T>(code + from, count), simd::pack<T>(e.value)),
                                  simd::load(dy + from, count));
            }
            simd::store(dx + to + c, sum, count);
        });
    });
}

/// y (n, out…, channels) = averages of x (n, in…, channels). 1 flop per element read and 1 per result.
template <class T>
void average_pool_forward(cpu, const pool_geometry& g, const T* x, T* y) {
    const double outputs = static_cast<double>(g.y_elements());
    work::count(static_cast<double>(g.n * g.reads() * g.channels) + outputs,
                (static_cast<double>(g.x_elements()) + outputs) * sizeof(T));
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    detail::for_windows<T>(
        g, [&, channels = g.channels](index n, index od, index oh, index ow, auto elements, index base) {
            const index out = (((n * d.out + od) * h.out + oh) * w.out + ow) * channels;
            const simd::pack<T> inverse(detail::inverse_window_size<T>(g, od, oh, ow));
            simd::for_packs<T>(channels, [&](index c, auto count) {
                simd::pack<T> sum(T{});
                for (const auto& e : elements) sum += simd::load(x + base + e.offset + c, count);
                simd::store(y + out + c, sum * inverse, count);
            });
        });
}

/// dx (n, in…, channels) from dy (n, out…, channels). 2 flops per element that a window covers.
template <class T>
void average_pool_backward(cpu, const pool_geometry& g, const T* dy, T* dx) {
    work::count(2 * static_cast<double>(g.n * g.reads() * g.channels),
                static_cast<double>(g.x_elements() + g.y_elements()) * sizeof(T));
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    if (g.tiles()) {
        detail::for_windows<T>(
            g, [&, channels = g.channels](index n, index od, index oh, index ow, auto elements, index base) {
                const index out = (((n * d.out + od) * h.out + oh) * w.out + ow) * channels;
                const simd::pack<T> inverse(detail::inverse_window_size<T>(g, od, oh, ow));
                simd::for_packs<T>(channels, [&](index c, auto count) {
                    const simd::pack<T> share = simd::load(dy + out + c, count) * inverse;
                    for (const auto& e : elements) simd::store(dx + base + e.offset + c, share, count);
                });
            });
        return;
    }
    const auto inverse = [&](index od, index oh, index ow, index, index, index) {
        return detail::inverse_window_size<T>(g, od, oh, ow);
    };
    detail::for_covers<T>(g, inverse, [=, channels = g.channels](index to, auto elements, index base) {
        simd::for_packs<T>(channels, [&](index c, auto count) {
            simd::pack<T> sum(T{});
            for (const auto& e : elements) sum += simd::load(dy + base + e.offset + c, count) * simd::pack<T>(e.value);
            simd::store(dx + to + c, sum, count);
        });
    });
}

/// y (n, channels) = mean over the points of x (n, points, channels). 1 flop per element and 1 per result.
template <class T>
void global_average_forward(cpu, index n, index points, index channels, const T* x, T* y) {
    const double elements = static_cast<double>(n) * static_cast<double>(points) * static_cast<double>(channels);
    work::count(elements + static_cast<double>(n * channels),
                (elements + static_cast<double>(n * channels)) * sizeof(T));
    constexpr index block = 256;  // points that are summed in T
    parallel_for(n, std::max<index>(1, (index{1} << 14) / std::max<index>(points * channels, 1)),
                 [&](index begin, index end) {
                     std::vector<T> part(static_cast<std::size_t>(channels));
                     std::vector<double> total(part.size());
                     for (index image = begin; image < end; ++image) {
                         std::fill(total.begin(), total.end(), 0.0);
                         for (index p = 0; p < points; p += block) {
                             std::fill(part.begin(), part.end(), T{});
                             detail::add_rows(std::min(block, points - p), channels,
                                              x + (image * points + p) * channels, part.data());
                             detail::add_rows_in_double(1, channels, channels, part.data(), total.data());
                         }
                         for (index c = 0; c < channels; ++c)
                             y[image * channels + c] =
                                 static_cast<T>(total[static_cast<std::size_t>(c)] / static_cast<double>(points));
                     }
                 });
}

/// dx (n, points, channels) = dy (n, channels) / points. 1 flop per element.
template <class T>
void global_average_backward(cpu, index n, index points, index channels, const T* dy, T* dx) {
    const double elements = static_cast<double>(n) * static_cast<double>(points) * static_cast<double>(channels);
    work::count(elements, (elements + static_cast<double>(n * channels)) * sizeof(T));
    const T inverse = T(1) / static_cast<T>(points);
    parallel_for(n * points, std::max<index>(1, (index{1} << 14) / std::max<index>(channels, 1)),
                 [=](index begin, index end) {
                     for (index p = begin; p < end; ++p) {
                         const T* const from = dy + p / points * channels;
                         T* const to = dx + p * channels;
#pragma omp simd
                         for (index c = 0; c < channels; ++c) to[c] = from[c] * inverse;
                     }
                 });
}

}  // namespace cairn
