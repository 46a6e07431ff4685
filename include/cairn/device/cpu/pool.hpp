#pragma once
// Maximum and average pooling over windows (device/pool_geometry.hpp), channels last, one to three spatial axes.
//   max forward       y[o] = max over the window, code[o] = position of the maximum in the window, row-major from the
//   uncut window's start
//   max backward      dx[i] = Σ over the windows o that cover i of (code[o] = i - start[o]) dy[o]
//   average forward   y[o] = Σ over the window / size,   size the whole kernel or the part inside the input
//   average backward  dx[i] = Σ over the windows o that cover i of dy[o] / size[o]
// Backward gathers, so that every dx is written once, by one thread, whatever the windows overlap; windows that tile
// the input are spread instead, which reads each dy once. Vector lanes are channels.
// Memory traffic: forward x read, y and codes written; backward dy and codes read, dx written. Sums run in float where
// T is bfloat16.
// Tested against tests/oracle/pool.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/simd_codes.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/pool_geometry.hpp>

#include <cstdint>
#include <vector>

namespace cairn {

namespace detail {

/// Its announcement.
template <class T>
kernel_call pool_call(const char* kind, const pool_geometry& g, double flops, double bytes) {
    const auto& [d, h, w] = g.axis;
    return kernel_call(kind, format_name<T>, flops, bytes,
                       {g.n, g.channels, d.in, h.in, w.in, d.out, h.out, w.out, d.kernel, h.kernel, w.kernel});
}

/// An element of a window, or a window that covers an element: where it starts, and what goes with it (a code or a
/// factor).
template <class Value>
struct pool_link {
    index_t offset;
    Value value;
};

/// Calls f with a number of links, as a compile-time constant for the usual windows, so that loops over them are
/// unrolled.
template <class F>
[[gnu::always_inline]] inline void with_link_count(std::size_t count, F&& f) {
    switch (count) {
        case 1:
            return f(std::integral_constant<std::size_t, 1>{});
        case 2:
            return f(std::integral_constant<std::size_t, 2>{});
        case 4:
            return f(std::integral_constant<std::size_t, 4>{});
        case 8:
            return f(std::integral_constant<std::size_t, 8>{});
        case 9:
            return f(std::integral_constant<std::size_t, 9>{});
        default:
            return f(count);
    }
}

/// Rows of a pooling that a thread takes at a time: about 64 KiB of x.
template <class T>
index_t pool_grain(index_t elements_of_a_row) {
    return std::max<index_t>(
        1, (index_t{1} << 16) / std::max<index_t>(elements_of_a_row * static_cast<index_t>(sizeof(T)), 1));
}

/// The elements of the window (od, oh, ow), offsets from the start of the image, each with its position in the window.
template <class Code>
void list_window(const pool_geometry& g, index_t od, index_t oh, index_t ow, std::vector<pool_link<Code>>& list) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const auto at = [](index_t i) { return static_cast<std::size_t>(i); };
    list.clear();
    for (index_t id = d.begin[at(od)]; id < d.end[at(od)]; ++id)
        for (index_t ih = h.begin[at(oh)]; ih < h.end[at(oh)]; ++ih)
            for (index_t iw = w.begin[at(ow)]; iw < w.end[at(ow)]; ++iw) {
                const index_t code =
                    ((id - d.start[at(od)]) * h.kernel + ih - h.start[at(oh)]) * w.kernel + iw - w.start[at(ow)];
                list.push_back({((id * h.in + ih) * w.in + iw) * g.channels, static_cast<Code>(code)});
            }
}

/// Calls body(links, base, out, od, oh, ow) for every window: links[k].offset + base is the start of an element in x,
/// out that of the result in y. The list of a row's uncut windows is made once and moved along.
template <class T, class Code, class Body>
void for_windows(const pool_geometry& g, Body&& body) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    parallel_for(g.n * d.out * h.out, pool_grain<T>(w.in * g.channels * d.kernel * h.kernel),
                 [&](index_t begin, index_t end) {
                     std::vector<pool_link<Code>> list;
                     list.reserve(static_cast<std::size_t>(g.window()));
                     for (index_t row = begin; row < end; ++row) {
                         const index_t n = row / (d.out * h.out), od = row / h.out % d.out, oh = row % h.out;
                         const index_t image = n * g.in_points() * g.channels;
                         index_t listed = -1;  // start of the uncut window that is in the list
                         for (index_t ow = 0; ow < w.out; ++ow) {
                             const auto o = static_cast<std::size_t>(ow);
                             const bool whole = w.end[o] - w.start[o] == w.kernel && w.begin[o] == w.start[o];
                             if (!whole || listed < 0) {
                                 list_window(g, od, oh, ow, list);
                                 listed = whole ? w.start[o] : -1;
                             }
                             const index_t moved = whole ? (w.start[o] - listed) * g.channels : 0;
                             body(list, image + moved, (row * w.out + ow) * g.channels, od, oh, ow);
                         }
                     }
                 });
}

/// Calls body(links, in) for every input position: links[k].offset is the start in y of a window that covers it,
/// links[k].value combines pair(od, id, oh, ih) and single(ow, iw); in is the position's start in x.
template <class T, class Pair, class Single, class Combine, class Body>
void for_covers(const pool_geometry& g, Pair&& pair, Single&& single, Combine&& combine, Body&& body) {
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    using row_value = decltype(pair(0, 0, 0, 0));
    using value = decltype(combine(pair(0, 0, 0, 0), single(0, 0)));
    const auto at = [](index_t i) { return static_cast<std::size_t>(i); };
    parallel_for(g.n * d.in * h.in, pool_grain<T>(w.in * g.channels), [&](index_t begin, index_t end) {
        std::vector<pool_link<row_value>> rows;
        std::vector<pool_link<value>> list;
        for (index_t row = begin; row < end; ++row) {
            const index_t n = row / (d.in * h.in), id = row / h.in % d.in, ih = row % h.in;
            rows.clear();  // rows of windows that cover this row of x
            for (index_t od = d.first[at(id)]; od < d.last[at(id)]; ++od)
                for (index_t oh = h.first[at(ih)]; oh < h.last[at(ih)]; ++oh)
                    rows.push_back({(((n * d.out + od) * h.out + oh) * w.out) * g.channels, pair(od, id, oh, ih)});
            for (index_t iw = 0; iw < w.in; ++iw) {
                list.resize(rows.size() * at(w.last[at(iw)] - w.first[at(iw)]));
                std::size_t k = 0;
                for (const pool_link<row_value>& r : rows)
                    for (index_t ow = w.first[at(iw)]; ow < w.last[at(iw)]; ++ow)
                        list[k++] = {r.offset + ow * g.channels, combine(r.value, single(ow, iw))};
                body(list, (row * w.in + iw) * g.channels);
            }
        }
    });
}

/// 1 / number of elements that the average over window (od, oh, ow) divides by.
template <class T>
T inverse_window_size(const pool_geometry& g, index_t od, index_t oh, index_t ow) {
    if (g.count_pad) return T(1) / static_cast<T>(g.window());
    return T(1) / static_cast<T>(g.axis[0].length(od) * g.axis[1].length(oh) * g.axis[2].length(ow));
}

}  // namespace detail

/// y and code (n, out…, channels) from x (n, in…, channels). code may be null. A NaN in a window is its maximum. Every
/// window must hold at least one element. 1 flop per element read.
template <class T, class Code>
void max_pool_forward(cpu, const pool_geometry& g, const T* x, T* y, Code* code) {
    using S = simd::arithmetic<T>;
    const double outputs = static_cast<double>(g.y_elements());
    const kernel_call call = detail::pool_call<T>(
        "max pool forward", g, static_cast<double>(g.n * g.reads() * g.channels),
        static_cast<double>(g.x_elements()) * sizeof(T) + outputs * (sizeof(T) + (code ? sizeof(Code) : 0)));
    using codes = simd::codes<S, Code>;
    detail::for_windows<T, Code>(g, [=, channels = g.channels](const auto& links, index_t base, index_t out, auto...) {
        const auto* const link = links.data();
        detail::with_link_count(links.size(), [=](auto links_count) {
            simd::for_packs<S>(channels, [=](index_t c, auto count) {
                const T* const from = x + base + c;
                simd::pack<S> best = simd::load(from + link[0].offset, count);
                codes at(link[0].value);
                for (std::size_t k = 1; k < links_count; ++k) {
                    const simd::pack<S> v = simd::load(from + link[k].offset, count);
                    // v > best, or v is NaN: a NaN stays, as nothing is greater.
                    const simd::mask<S> better = simd::either(simd::greater(v, best), simd::unordered(v));
                    best = simd::select(better, v, best);
                    at = select(better, codes(link[k].value), at);
                }
                simd::store(y + out + c, best, count);
                if (code) at.store(code + out + c, count);
            });
        });
    });
}

/// dx (n, in…, channels) from dy and code (n, out…, channels). 1 flop per element that a window covers.
template <class T, class Code>
void max_pool_backward(cpu, const pool_geometry& g, const T* dy, const Code* code, T* dx) {
    using S = simd::arithmetic<T>;
    const kernel_call call =
        detail::pool_call<T>("max pool backward", g, static_cast<double>(g.n * g.reads() * g.channels),
                             static_cast<double>(g.x_elements()) * sizeof(T) +
                                 static_cast<double>(g.y_elements()) * (sizeof(T) + sizeof(Code)));
    using codes = simd::codes<S, Code>;
    if (g.tiles()) {
        detail::for_windows<T, Code>(
            g, [=, channels = g.channels](const auto& links, index_t base, index_t out, auto...) {
                const auto* const link = links.data();
                detail::with_link_count(links.size(), [=](auto links_count) {
                    simd::for_packs<S>(channels, [=](index_t c, auto count) {
                        const simd::pack<S> gradient = simd::load(dy + out + c, count);
                        const codes at = codes::load(code + out + c, count);
                        for (std::size_t k = 0; k < links_count; ++k)
                            simd::store(dx + base + link[k].offset + c,
                                        simd::keep(at == codes(link[k].value), gradient), count);
                    });
                });
            });
        return;
    }
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const auto from = [](const pool_axis& a, index_t o, index_t i) { return i - a.start[pool_axis::at(o)]; };
    detail::for_covers<T>(
        g,
        [&](index_t od, index_t id, index_t oh, index_t ih) {
            return (from(d, od, id) * h.kernel + from(h, oh, ih)) * w.kernel;
        },
        [&](index_t ow, index_t iw) { return from(w, ow, iw); },
        [](index_t of_rows, index_t in_row) { return static_cast<Code>(of_rows + in_row); },
        [=, channels = g.channels](const auto& links, index_t in) {
            const auto* const link = links.data();
            detail::with_link_count(links.size(), [=](auto links_count) {
                simd::for_packs<S>(channels, [=](index_t c, auto count) {
                    simd::pack<S> sum(S{});
                    for (std::size_t k = 0; k < links_count; ++k) {
                        const index_t at = link[k].offset + c;
                        sum += simd::keep(codes::load(code + at, count) == codes(link[k].value),
                                          simd::load(dy + at, count));
                    }
                    simd::store(dx + in + c, sum, count);
                });
            });
        });
}

/// y (n, out…, channels) = averages of x (n, in…, channels). 1 flop per element read and 1 per result.
template <class T>
void average_pool_forward(cpu, const pool_geometry& g, const T* x, T* y) {
    using S = simd::arithmetic<T>;
    const double outputs = static_cast<double>(g.y_elements());
    const kernel_call call =
        detail::pool_call<T>("average pool forward", g, static_cast<double>(g.n * g.reads() * g.channels) + outputs,
                             (static_cast<double>(g.x_elements()) + outputs) * sizeof(T));
    detail::for_windows<T, std::int32_t>(
        g, [=, &g](const auto& links, index_t base, index_t out, index_t od, index_t oh, index_t ow) {
            const auto* const link = links.data();
            const simd::pack<S> inverse(detail::inverse_window_size<S>(g, od, oh, ow));
            detail::with_link_count(links.size(), [=, channels = g.channels](auto links_count) {
                simd::for_packs<S>(channels, [=](index_t c, auto count) {
                    simd::pack<S> sum(S{});
                    for (std::size_t k = 0; k < links_count; ++k)
                        sum += simd::load(x + base + link[k].offset + c, count);
                    simd::store(y + out + c, sum * inverse, count);
                });
            });
        });
}

/// dx (n, in…, channels) from dy (n, out…, channels). 2 flops per element that a window covers.
template <class T>
void average_pool_backward(cpu, const pool_geometry& g, const T* dy, T* dx) {
    using S = simd::arithmetic<T>;
    const kernel_call call =
        detail::pool_call<T>("average pool backward", g, 2 * static_cast<double>(g.n * g.reads() * g.channels),
                             static_cast<double>(g.x_elements() + g.y_elements()) * sizeof(T));
    if (g.tiles()) {
        detail::for_windows<T, std::int32_t>(
            g, [=, &g](const auto& links, index_t base, index_t out, index_t od, index_t oh, index_t ow) {
                const auto* const link = links.data();
                const simd::pack<S> inverse(detail::inverse_window_size<S>(g, od, oh, ow));
                detail::with_link_count(links.size(), [=, channels = g.channels](auto links_count) {
                    simd::for_packs<S>(channels, [=](index_t c, auto count) {
                        const simd::pack<S> share = simd::load(dy + out + c, count) * inverse;
                        for (std::size_t k = 0; k < links_count; ++k)
                            simd::store(dx + base + link[k].offset + c, share, count);
                    });
                });
            });
        return;
    }
    const pool_axis &d = g.axis[0], &h = g.axis[1], &w = g.axis[2];
    const auto length = [&](const pool_axis& a, index_t o) {
        return static_cast<S>(g.count_pad ? a.kernel : a.length(o));
    };
    detail::for_covers<T>(
        g, [&](index_t od, index_t, index_t oh, index_t) { return S(1) / (length(d, od) * length(h, oh)); },
        [&](index_t ow, index_t) { return S(1) / length(w, ow); }, [](S of_rows, S in_row) { return of_rows * in_row; },
        [=, channels = g.channels](const auto& links, index_t in) {
            const auto* const link = links.data();
            detail::with_link_count(links.size(), [=](auto links_count) {
                simd::for_packs<S>(channels, [=](index_t c, auto count) {
                    simd::pack<S> sum(S{});
                    for (std::size_t k = 0; k < links_count; ++k)
                        sum += simd::load(dy + link[k].offset + c, count) * simd::pack<S>(link[k].value);
                    simd::store(dx + in + c, sum, count);
                });
            });
        });
}

/// y (n, channels) = mean over the points of x (n, points, channels). 1 flop per element and 1 per result.
template <class T>
void global_average_forward(cpu, index_t n, index_t points, index_t channels, const T* x, T* y) {
    using S = simd::arithmetic<T>;
    const double elements = static_cast<double>(n) * static_cast<double>(points) * static_cast<double>(channels);
    const kernel_call call("global average forward", format_name<T>, elements + static_cast<double>(n * channels),
                           (elements + static_cast<double>(n * channels)) * sizeof(T), {n, points, channels});
    constexpr index_t block = 256;  // points that are summed in S
    parallel_for(n, std::max<index_t>(1, (index_t{1} << 14) / std::max<index_t>(points * channels, 1)),
                 [&](index_t begin, index_t end) {
                     std::vector<S> part(static_cast<std::size_t>(channels));
                     std::vector<double> total(part.size());
                     for (index_t image = begin; image < end; ++image) {
                         std::fill(total.begin(), total.end(), 0.0);
                         for (index_t p = 0; p < points; p += block) {
                             std::fill(part.begin(), part.end(), S{});
                             detail::add_rows(std::min(block, points - p), channels,
                                              x + (image * points + p) * channels, part.data());
                             detail::add_rows_in_double(1, channels, channels, part.data(), total.data());
                         }
                         for (index_t c = 0; c < channels; ++c)
                             y[image * channels + c] =
                                 static_cast<S>(total[static_cast<std::size_t>(c)] / static_cast<double>(points));
                     }
                 });
}

/// dx (n, points, channels) = dy (n, channels) / points. 1 flop per element.
template <class T>
void global_average_backward(cpu, index_t n, index_t points, index_t channels, const T* dy, T* dx) {
    using S = simd::arithmetic<T>;
    const double elements = static_cast<double>(n) * static_cast<double>(points) * static_cast<double>(channels);
    const kernel_call call("global average backward", format_name<T>, elements,
                           (elements + static_cast<double>(n * channels)) * sizeof(T), {n, points, channels});
    const S inverse = S(1) / static_cast<S>(points);
    parallel_for(n * points, std::max<index_t>(1, (index_t{1} << 14) / std::max<index_t>(channels, 1)),
                 [=](index_t begin, index_t end) {
                     for (index_t p = begin; p < end; ++p) {
                         const T* const from = dy + p / points * channels;
                         T* const to = dx + p * channels;
#pragma omp simd
                         for (index_t c = 0; c < channels; ++c) to[c] = from[c] * inverse;
                     }
                 });
}

}  // namespace cairn
