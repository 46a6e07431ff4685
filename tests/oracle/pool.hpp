#pragma once
// Pooling by plain loops over three spatial axes, channels last: the definitions that the kernels are compared with.

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <vector>

namespace oracle {

/// Windows along one axis: [begin, end) inside the input, [full_begin, full_end) uncut.
struct pool_window {
    std::ptrdiff_t begin, end, full_begin, full_end;
};
using pool_windows = std::vector<pool_window>;

inline pool_windows sliding(std::ptrdiff_t in, std::ptrdiff_t kernel, std::ptrdiff_t stride, std::ptrdiff_t pad) {
    pool_windows all;
    for (std::ptrdiff_t at = -pad; at + kernel <= in + pad; at += stride)
        all.push_back({std::max<std::ptrdiff_t>(at, 0), std::min(at + kernel, in), at, at + kernel});
    return all;
}

inline pool_windows adaptive(std::ptrdiff_t in, std::ptrdiff_t out) {
    pool_windows all;
    for (std::ptrdiff_t o = 0; o < out; ++o) {
        const std::ptrdiff_t begin = o * in / out, end = ((o + 1) * in + out - 1) / out;
        all.push_back({begin, end, begin, end});
    }
    return all;
}

/// y of the pooling, and dx of the loss Σ dy y.
struct pool_result {
    std::vector<double> y, dx;
};

enum class pooling { max, average, average_inside };  // average: divided by the uncut window

/// x (n, in, channels), windows for each axis. Of equal maxima the first one gets the gradient.
inline pool_result pool(pooling kind, std::ptrdiff_t n, const std::array<std::ptrdiff_t, 3>& in,
                        const std::array<pool_windows, 3>& windows, std::ptrdiff_t channels,
                        const std::vector<double>& x, const std::vector<double>& dy) {
    pool_result r;
    r.dx.resize(x.size());
    for (std::ptrdiff_t image = 0; image < n; ++image)
        for (const pool_window& d : windows[0])
            for (const pool_window& h : windows[1])
                for (const pool_window& w : windows[2])
                    for (std::ptrdiff_t c = 0; c < channels; ++c) {
                        const double gradient = dy[r.y.size()];
                        double largest = -std::numeric_limits<double>::infinity(), sum = 0;
                        std::size_t at = 0;
                        std::vector<std::size_t> inside;
                        for (auto id = d.begin; id < d.end; ++id)
                            for (auto ih = h.begin; ih < h.end; ++ih)
                                for (auto iw = w.begin; iw < w.end; ++iw) {
                                    const auto i =
                                        std::size_t((((image * in[0] + id) * in[1] + ih) * in[2] + iw) * channels + c);
                                    inside.push_back(i);
                                    sum += x[i];
                                    if (x[i] > largest) {
                                        largest = x[i];
                                        at = i;
                                    }
                                }
                        if (kind == pooling::max) {
                            r.y.push_back(largest);
                            r.dx[at] += gradient;
                            continue;
                        }
                        const double size = kind == pooling::average_inside
                                                ? double(inside.size())
                                                : double((d.full_end - d.full_begin) * (h.full_end - h.full_begin) *
                                                         (w.full_end - w.full_begin));
                        r.y.push_back(sum / size);
                        for (const std::size_t i : inside) r.dx[i] += gradient / size;
                    }
    return r;
}

}  // namespace oracle
