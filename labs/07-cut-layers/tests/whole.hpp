#pragma once
// Shared by the tests of this lab: arrays drawn from the seed, the same layers on one rank by plain loops.

#include "judge.hpp"

#include <cairn/core/range.hpp>

#include <algorithm>

namespace lab {

using doubles = std::vector<double>;
using grid = std::pair<int, int>;
using window = std::tuple<int, int, int>;  // kernel, stride, padding

struct matrix {
    std::size_t rows = 0, cols = 0;
    doubles values;
    double& operator()(std::size_t r, std::size_t c) { return values[r * cols + c]; }
};
template <>
struct members<matrix> {
    static auto of(auto& m) { return std::tie(m.rows, m.cols, m.values); }
};
struct pair_of_layers {
    matrix w1;
    doubles b1;
    matrix w2;
    doubles b2;
};
template <>
struct members<pair_of_layers> {
    static auto of(auto& p) { return std::tie(p.w1, p.b1, p.w2, p.b2); }
};
struct volume {
    std::size_t channels = 0, depth = 0, height = 0, width = 0;
    doubles values;
    double& at(std::size_t c, std::size_t d, std::size_t h, std::size_t w) {
        return values[((c * depth + d) * height + h) * width + w];
    }
    double read(std::size_t c, long d, long h, long w) const {  // 0 outside
        if (d < 0 || h < 0 || w < 0 || d >= long(depth) || h >= long(height) || w >= long(width)) return 0;
        return values[((c * depth + std::size_t(d)) * height + std::size_t(h)) * width + std::size_t(w)];
    }
};
template <>
struct members<volume> {
    static auto of(auto& v) { return std::tie(v.channels, v.depth, v.height, v.width, v.values); }
};
struct windows {
    std::size_t out = 0, in = 0, kernel = 1;
    doubles values;
};
template <>
struct members<windows> {
    static auto of(auto& w) { return std::tie(w.out, w.in, w.kernel, w.values); }
};

inline matrix random_matrix(std::size_t r, std::size_t c, std::uint32_t stream) {
    return {r, c, numbers<double>(r * c, stream)};
}
inline volume random_volume(std::size_t c, std::size_t d, std::size_t h, std::size_t w, std::uint32_t stream) {
    return {c, d, h, w, numbers<double>(c * d * h * w, stream)};
}
/// Numbers lie in (−1, 1): sums of so few products are off by less.
inline std::string fault(const doubles& got, const doubles& expected, const std::string& what) {
    const std::string why = difference(std::span<const double>(got), expected, doubles(expected.size(), 1e-11));
    return why.empty() ? "" : what + ": " + why;
}
inline std::string fault(const matrix& got, const matrix& expected, const std::string& what) {
    if (got.rows != expected.rows || got.cols != expected.cols)
        return what + " is " + std::to_string(got.rows) + " x " + std::to_string(got.cols) + ", expected " +
               std::to_string(expected.rows) + " x " + std::to_string(expected.cols);
    return fault(got.values, expected.values, what);
}
inline std::string fault(const volume& got, const volume& expected, const std::string& what) {
    const auto shape = [](const volume& v) {
        return std::to_string(v.channels) + " channels of " + std::to_string(v.depth) + " x " +
               std::to_string(v.height) + " x " + std::to_string(v.width);
    };
    if (shape(got) != shape(expected)) return what + " has " + shape(got) + ", expected " + shape(expected);
    const std::string why = fault(got.values, expected.values, what);
    for (std::size_t i = 0; !why.empty() && i < std::min(got.values.size(), expected.values.size()); ++i)
        if (!(std::abs(got.values[i] - expected.values[i]) <= 1e-11))
            return why + " (channel " + std::to_string(i / (got.depth * got.height * got.width)) + ", depth " +
                   std::to_string(i / (got.height * got.width) % got.depth) + ", height " +
                   std::to_string(i / got.width % got.height) + ", width " + std::to_string(i % got.width) + " of " +
                   shape(got) + ")";
    return why;
}
inline cairn::range part(std::size_t n, int r, int p) { return cairn::shard_of(static_cast<cairn::index_t>(n), p, r); }

/// Both layers whole, with what goes through them and comes back.
struct whole_pair {
    pair_of_layers weights, gradient;
    matrix x, dy, y, dx;

    whole_pair(std::size_t n, std::size_t in, std::size_t hidden, std::size_t out, std::uint32_t stream)
        : weights{random_matrix(hidden, in, stream), numbers<double>(hidden, stream + 1),
                  random_matrix(out, hidden, stream + 2), numbers<double>(out, stream + 3)},
          gradient{
              {hidden, in, doubles(hidden * in)}, doubles(hidden), {out, hidden, doubles(out * hidden)}, doubles(out)},
          x(random_matrix(n, in, stream + 4)),
          dy(random_matrix(n, out, stream + 5)),
          y{n, out, doubles(n * out)},
          dx{n, in, doubles(n * in)} {
        for (std::size_t e = 0; e < n; ++e) {
            for (std::size_t o = 0; o < out; ++o) y(e, o) = weights.b2[o], gradient.b2[o] += dy(e, o);
            for (std::size_t j = 0; j < hidden; ++j) {
                double h = weights.b1[j], dh = 0;
                for (std::size_t i = 0; i < in; ++i) h += x(e, i) * weights.w1(j, i);
                h = std::max(h, 0.0);
                for (std::size_t o = 0; o < out; ++o) {
                    y(e, o) += h * weights.w2(o, j), gradient.w2(o, j) += dy(e, o) * h;
                    if (h > 0) dh += dy(e, o) * weights.w2(o, j);
                }
                gradient.b1[j] += dh;
                for (std::size_t i = 0; i < in; ++i)
                    gradient.w1(j, i) += dh * x(e, i), dx(e, i) += dh * weights.w1(j, i);
            }
        }
    }
};
/// Rank r's rows of W1 and b1, columns of W2, and all of b2.
inline pair_of_layers cut(pair_of_layers whole, int r, int p) {
    const auto mine = part(whole.b1.size(), r, p);
    const auto begin = static_cast<std::size_t>(mine.begin), n = static_cast<std::size_t>(mine.count);
    pair_of_layers here{{n, whole.w1.cols, doubles(n * whole.w1.cols)},
                        doubles(n),
                        {whole.w2.rows, n, doubles(whole.w2.rows * n)},
                        whole.b2};
    for (std::size_t j = 0; j < n; ++j) {
        for (std::size_t i = 0; i < whole.w1.cols; ++i) here.w1(j, i) = whole.w1(begin + j, i);
        here.b1[j] = whole.b1[begin + j];
        for (std::size_t o = 0; o < whole.w2.rows; ++o) here.w2(o, j) = whole.w2(o, begin + j);
    }
    return here;
}
inline std::string fault(const pair_of_layers& got, const pair_of_layers& expected, const std::string& what) {
    for (const auto& why : {fault(got.w1, expected.w1, what + " W1"), fault(got.b1, expected.b1, what + " b1"),
                            fault(got.w2, expected.w2, what + " W2"), fault(got.b2, expected.b2, what + " b2")})
        if (!why.empty()) return why;
    return {};
}
/// Empty, or what is wrong with forward, backward (if asked) or their messages (if asked) on p ranks.
inline std::string fault_of_pair(int p, whole_pair w, bool backward, bool count) {
    using saved = std::pair<matrix, matrix>;
    const auto f =
        on_ranks<std::pair<matrix, saved>>(p, "forward", [&](int r) { return std::tuple(cut(w.weights, r, p), w.x); });
    const auto counted = [&](const std::vector<lab::sent>& sent, std::size_t n,
                             const std::string& what) -> std::string {
        std::int64_t bytes = 0;
        for (const auto& s : sent) {
            bytes += s.bytes;
            if (s.messages != 2 * (p - 1))
                return what + ": a rank sent " + std::to_string(s.messages) + " messages; one all-reduce sends " +
                       std::to_string(2 * (p - 1));
        }
        const auto should = static_cast<std::int64_t>(16 * n) * (p - 1);
        return bytes == should ? ""
                               : what + ": all ranks sent " + std::to_string(bytes) + " bytes; one all-reduce sends " +
                                     std::to_string(should);
    };
    const std::string ranks = text(p, "rank") + ", ";
    std::vector<doubles> ys, dxs;
    for (int r = 0; r < p; ++r) {
        const matrix& y = f.results[static_cast<std::size_t>(r)].first;
        ys.push_back(y.values);
        if (auto why = fault(y, w.y, ranks + "y on rank " + std::to_string(r)); !why.empty()) return why;
    }
    if (auto why = disagreement(ys); !why.empty()) return why;
    if (count)
        if (auto why = counted(f.sent, w.y.values.size(), "forward"); !why.empty()) return why;
    if (!backward) return {};
    const auto b = on_ranks<std::pair<matrix, pair_of_layers>>(p, "backward", [&](int r) {
        return std::tuple(cut(w.weights, r, p), f.results[static_cast<std::size_t>(r)].second, w.dy);
    });
    for (int r = 0; r < p; ++r) {
        const auto& [dx, gradient] = b.results[static_cast<std::size_t>(r)];
        const std::string rank = " on rank " + std::to_string(r);
        dxs.push_back(dx.values);
        if (auto why = fault(dx, w.dx, ranks + "dx" + rank); !why.empty()) return why;
        if (auto why = fault(gradient, cut(w.gradient, r, p), ranks + "gradient" + rank + " of"); !why.empty())
            return why;
    }
    if (auto why = disagreement(dxs); !why.empty()) return why;
    return count ? counted(b.sent, w.dx.values.size(), "backward") : "";
}

/// Where a rank stands in a grid of rows and columns.
inline int row_of(grid g, int r) { return r / g.second; }
inline int column_of(grid g, int r) { return r % g.second; }

inline std::string name(grid g) {
    return "grid of " + std::to_string(g.first) + " x " + std::to_string(g.second) + " ranks";
}

/// A volume cut over a grid: rank r's block, with `radius` rows around it, zeros outside.
inline volume block(const volume& v, grid g, int r, std::size_t radius = 0) {
    const auto d = part(v.depth, row_of(g, r), g.first), h = part(v.height, column_of(g, r), g.second);
    volume b{v.channels, std::size_t(d.count) + 2 * radius, std::size_t(h.count) + 2 * radius, v.width, {}};
    for (std::size_t c = 0; c < b.channels; ++c)
        for (std::size_t i = 0; i < b.depth; ++i)
            for (std::size_t j = 0; j < b.height; ++j)
                for (std::size_t w = 0; w < b.width; ++w)
                    b.values.push_back(v.read(c, long(d.begin) + long(i) - long(radius),
                                              long(h.begin) + long(j) - long(radius), long(w)));
    return b;
}
inline std::int64_t halo_bytes(const volume& v, grid g, int r, std::size_t radius) {
    const volume b = block(v, g, r);
    const int row = row_of(g, r), column = column_of(g, r);
    const std::size_t in_depth = std::size_t((row > 0) + (row + 1 < g.first)) * radius * b.height,
                      in_height = std::size_t((column > 0) + (column + 1 < g.second)) * radius * (b.depth + 2 * radius);
    return static_cast<std::int64_t>(8 * v.channels * v.width * (in_depth + in_height));
}
/// Empty, or what is wrong with halos of v.
inline std::string fault_of_halo(const volume& v, grid g, std::size_t radius) {
    const int p = g.first * g.second;
    const auto got = on_ranks<volume>(p, "with_halo", [&](int r) { return std::tuple(g, block(v, g, r), radius); });
    for (int r = 0; r < p; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const std::string what = name(g) + ", radius " + std::to_string(radius) + ", rank " + std::to_string(r);
        if (auto why = fault(got.results[at], block(v, g, r, radius), what); !why.empty()) return why;
        if (got.sent[at].bytes != halo_bytes(v, g, r, radius))
            return what + " sent " + std::to_string(got.sent[at].bytes) + " bytes, expected " +
                   std::to_string(halo_bytes(v, g, r, radius));
        if (got.sent[at].messages > 4) return what + " sent more than 4 messages";
    }
    return {};
}
/// Empty, or what is wrong with the adjoint: each rank's extended block is a gradient, added up where rows are shared.
inline std::string fault_of_adjoint(const volume& like, grid g, std::size_t radius, std::uint32_t stream) {
    const int p = g.first * g.second;
    volume sum = like;
    std::fill(sum.values.begin(), sum.values.end(), 0);
    std::vector<volume> extended;
    for (int r = 0; r < p; ++r) {
        volume e = block(like, g, r, radius);
        e.values = numbers<double>(e.values.size(), stream++);
        const auto d0 = part(like.depth, row_of(g, r), g.first).begin,
                   h0 = part(like.height, column_of(g, r), g.second).begin;
        for (std::size_t c = 0; c < e.channels; ++c)
            for (std::size_t i = 0; i < e.depth; ++i)
                for (std::size_t j = 0; j < e.height; ++j)
                    for (std::size_t w = 0; w < e.width; ++w) {
                        const long d = long(d0) + long(i) - long(radius), h = long(h0) + long(j) - long(radius);
                        if (d >= 0 && h >= 0 && d < long(like.depth) && h < long(like.height))
                            sum.at(c, std::size_t(d), std::size_t(h), w) += e.at(c, i, j, w);
                    }
        extended.push_back(e);
    }
    const auto got = on_ranks<volume>(
        p, "add_halo", [&](int r) { return std::tuple(g, extended[static_cast<std::size_t>(r)], radius); });
    for (int r = 0; r < p; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const std::string what = name(g) + ", radius " + std::to_string(radius) + ", rank " + std::to_string(r);
        if (auto why = fault(got.results[at], block(sum, g, r), what); !why.empty()) return why;
        if (got.sent[at].bytes != halo_bytes(like, g, r, radius))
            return what + " sent " + std::to_string(got.sent[at].bytes) + " bytes, expected " +
                   std::to_string(halo_bytes(like, g, r, radius)) + ", as with_halo";
    }
    return {};
}
/// Empty, or what is wrong with the three functions of a convolution on a grid.
inline std::string fault_of_conv(const volume& x, std::size_t out, std::size_t k, grid g, std::uint32_t stream) {
    const int p = g.first * g.second;
    const windows w{out, x.channels, k, numbers<double>(out * x.channels * k * k * k, stream)};
    volume y{out, x.depth, x.height, x.width, doubles(out * x.depth * x.height * x.width)}, dx = x;
    const volume dy = random_volume(out, x.depth, x.height, x.width, stream + 1);
    std::fill(dx.values.begin(), dx.values.end(), 0);
    doubles dw(w.values.size());
    const long radius = long(k / 2);
    for (std::size_t o = 0; o < out; ++o)
        for (std::size_t d = 0; d < x.depth; ++d)
            for (std::size_t h = 0; h < x.height; ++h)
                for (std::size_t e = 0; e < x.width; ++e)
                    for (std::size_t i = 0; i < x.channels; ++i)
                        for (std::size_t t = 0; t < k * k * k; ++t) {
                            const long a = long(d + t / (k * k)) - radius, b = long(h + t / k % k) - radius,
                                       c = long(e + t % k) - radius;
                            if (a < 0 || b < 0 || c < 0 || a >= long(x.depth) || b >= long(x.height) ||
                                c >= long(x.width))
                                continue;
                            const std::size_t at = (o * x.channels + i) * k * k * k + t;
                            const double g_out = dy.read(o, long(d), long(h), long(e));
                            y.at(o, d, h, e) += w.values[at] * x.read(i, a, b, c);
                            dx.at(i, std::size_t(a), std::size_t(b), std::size_t(c)) += w.values[at] * g_out;
                            dw[at] += x.read(i, a, b, c) * g_out;
                        }
    const auto ys = on_ranks<volume>(p, "conv_forward", [&](int r) { return std::tuple(g, block(x, g, r), w); });
    const auto dxs =
        on_ranks<volume>(p, "conv_input_gradient", [&](int r) { return std::tuple(g, block(dy, g, r), w); });
    const auto dws = on_ranks<windows>(p, "conv_weight_gradient",
                                       [&](int r) { return std::tuple(g, block(x, g, r), block(dy, g, r), w); });
    for (int r = 0; r < p; ++r) {
        const auto at = static_cast<std::size_t>(r);
        const std::string rank = " on rank " + std::to_string(r) + ", " + name(g);
        for (const auto& why :
             {fault(ys.results[at], block(y, g, r), "y" + rank), fault(dxs.results[at], block(dx, g, r), "dx" + rank),
              fault(dws.results[at].values, dw, "gradient of the weights" + rank)})
            if (!why.empty()) return why;
    }
    return {};
}

}  // namespace lab
