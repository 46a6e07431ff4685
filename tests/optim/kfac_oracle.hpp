#pragma once
// K-FAC of one layer by loops in double and a dense solve of its block: what the preconditioner is compared with, on
// the host and on devices.

#include <cairn/core/random.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cairn::kfac_oracle {

template <class Layer>
struct conv_problem {
    typename Layer::config c;
    shape in;
};

/// Convolutions of 1 to 3 axes, with stride, padding, dilation and groups.
template <class Layer>
std::vector<conv_problem<Layer>> convolutions_of_all_kinds() {
    return {
        {{.in = 2, .out = 3, .kernel = 3, .pad = 1, .dims = 1}, {3, 7, 2}},
        {{.in = 2, .out = 3, .kernel = {2, 3}, .stride = {2, 1}, .pad = {0, 1}}, {2, 5, 4, 2}},
        {{.in = 2, .out = 2, .kernel = 2, .dilation = 2}, {2, 5, 5, 2}},
        {{.in = 4, .out = 6, .kernel = 2, .groups = 2}, {3, 4, 4, 4}},
        {{.in = 3, .out = 4, .kernel = 1, .bias = false}, {2, 3, 3, 3}},
        {{.in = 4, .out = 4, .kernel = 1, .groups = 2, .bias = false}, {2, 3, 3, 4}},
        {{.in = 3, .out = 3, .kernel = 2, .groups = 3, .bias = false}, {2, 4, 4, 3}},
        {{.in = 2, .out = 2, .kernel = 2, .stride = 2, .pad = 1, .dims = 3}, {2, 3, 4, 3, 2}},
        {{.in = 1, .out = 2, .kernel = 2, .stride = 3, .bias = false}, {1, 6, 6, 1}},  // stride > kernel, batch of one
    };
}

/// A layer with its factors by loops: rows ā (in) and g (out) of every example and position, of one group.
struct rows_by_loops {
    std::vector<std::vector<double>> a, g;
};

/// V of (S · A ⊗ G + γ I) V = ∇W, by a dense solve; A (in, in), G (out, out), ∇W (out, in).
inline std::vector<double> solve_kronecker(const std::vector<double>& a, std::size_t in, const std::vector<double>& g,
                                           std::size_t out, double positions, double damping,
                                           const std::vector<double>& gradient) {
    const auto n = static_cast<index_t>(in * out);
    tensor<double> fisher({n, n}), rhs({n});
    for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i) {
            rhs[static_cast<index_t>(o * in + i)] = gradient[o * in + i];
            for (std::size_t p = 0; p < out; ++p)
                for (std::size_t k = 0; k < in; ++k)
                    fisher[static_cast<index_t>((o * in + i) * in * out + p * in + k)] =
                        positions * g[o * out + p] * a[i * in + k] + (o == p && i == k ? damping : 0);
        }
    const tensor<double> x = solve(cpu{}, fisher, rhs);
    return {x.data(), x.data() + x.size()};
}

/// The same for the A and G of these rows.
inline std::vector<double> solve_block(const rows_by_loops& rows, double examples, double positions, double damping,
                                       const std::vector<double>& gradient) {
    const std::size_t in = rows.a[0].size(), out = rows.g[0].size();
    const double count = examples * positions;
    std::vector<double> a(in * in), g(out * out);
    for (std::size_t r = 0; r < rows.a.size(); ++r) {
        for (std::size_t i = 0; i < in; ++i)
            for (std::size_t k = 0; k < in; ++k) a[i * in + k] += rows.a[r][i] * rows.a[r][k] / count;
        for (std::size_t i = 0; i < out; ++i)
            for (std::size_t k = 0; k < out; ++k)
                g[i * out + k] += examples * examples * rows.g[r][i] * rows.g[r][k] / count;
    }
    return solve_kronecker(a, in, g, out, positions, damping, gradient);
}

inline double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double worst = 0, scale = 1e-300;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return worst / scale;
}

inline tensor<double> random_tensor(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream r{3, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = r.normal(static_cast<std::uint64_t>(i));
    return t;
}

/// Rows of x and dy of a linear layer with bias, in order.
inline rows_by_loops rows_of_linear(const tensor<double>& x, const tensor<double>& dy, index_t in, index_t out,
                                    bool bias = true) {
    rows_by_loops rows;
    for (index_t r = 0; r < x.size() / in; ++r) {
        rows.a.emplace_back(x.data() + r * in, x.data() + (r + 1) * in);
        if (bias) rows.a.back().push_back(1);
        rows.g.emplace_back(dy.data() + r * out, dy.data() + (r + 1) * out);
    }
    return rows;
}

/// Patches and output gradients of group q of a convolution, in order.
inline rows_by_loops rows_of_conv(const tensor<double>& x, const tensor<double>& dy, const conv_geometry& g, bool bias,
                                  index_t q) {
    const index_t group_in = g.c_in / g.groups, group_out = g.c_out / g.groups;
    rows_by_loops rows;
    for (index_t n = 0; n < g.n; ++n)
        for (index_t od = 0; od < g.out[0]; ++od)
            for (index_t oh = 0; oh < g.out[1]; ++oh)
                for (index_t ow = 0; ow < g.out[2]; ++ow) {
                    std::vector<double> a, to;
                    for (index_t kd = 0; kd < g.kernel[0]; ++kd)
                        for (index_t kh = 0; kh < g.kernel[1]; ++kh)
                            for (index_t kw = 0; kw < g.kernel[2]; ++kw)
                                for (index_t c = 0; c < group_in; ++c) {
                                    const index_t d = od * g.stride[0] + kd * g.dilation[0] - g.pad[0];
                                    const index_t h = oh * g.stride[1] + kh * g.dilation[1] - g.pad[1];
                                    const index_t w = ow * g.stride[2] + kw * g.dilation[2] - g.pad[2];
                                    const bool inside =
                                        d >= 0 && d < g.in[0] && h >= 0 && h < g.in[1] && w >= 0 && w < g.in[2];
                                    a.push_back(inside ? x[(((n * g.in[0] + d) * g.in[1] + h) * g.in[2] + w) * g.c_in +
                                                           q * group_in + c]
                                                       : 0.0);
                                }
                    if (bias) a.push_back(1);
                    const index_t point = ((n * g.out[0] + od) * g.out[1] + oh) * g.out[2] + ow;
                    for (index_t o = 0; o < group_out; ++o) to.push_back(dy[point * g.c_out + q * group_out + o]);
                    rows.a.push_back(a);
                    rows.g.push_back(to);
                }
    return rows;
}

/// The same numbers on another device, in another type.
template <class T, Device D>
tensor<T, D> as(const tensor<double>& t) {
    tensor<T> here(t.shape());
    for (index_t i = 0; i < t.size(); ++i) here[i] = static_cast<T>(t[i]);
    return tensor<T, D>::copy_of(here);
}

/// Gradients of a layer's weight, row by row, each with its bias's behind it.
template <class T, Device D>
std::vector<double> gradient_rows(const arena<T, D>& weights) {
    const auto& all = weights.parameters();
    std::vector<tensor<T>> grads;
    for (const auto& [name, p] : all) grads.push_back(p->grad.on_host());
    std::vector<double> rows;
    const index_t out = all[0].p->shape[0], width = all[0].p->shape.size() / out;
    for (index_t o = 0; o < out; ++o) {
        for (index_t i = 0; i < width; ++i) rows.push_back(static_cast<double>(grads[0][o * width + i]));
        if (all.size() > 1) rows.push_back(static_cast<double>(grads[1][o]));
    }
    return rows;
}

/// One pass of a layer with gradient `dy`, and K-FAC's result for its only weight; the gradient before it in
/// `gradient`.
template <class T = double, Device D = cpu, class L>
std::vector<double> preconditioned(L layer, const tensor<double>& x, const tensor<double>& dy, kfac_config config,
                                   std::vector<double>& gradient) {
    sequential<T, D> net;
    net.add("layer", std::move(layer));
    arena<T, D> weights(net.parameters(), 5);
    weights.zero_grad();
    kfac<T, D> k(weights, config);
    pass_context p;
    p.curvature = k.begin_step();
    saved_tensors<T, D> saved;
    net.forward(as<T, D>(x), saved, p);
    net.backward(as<T, D>(dy), saved, p);
    gradient = gradient_rows(weights);
    k.precondition(static_cast<double>(x.extent(0)), 0.1);
    return gradient_rows(weights);
}

inline kfac_config exact(double damping) { return {.damping = damping, .kl_clip = 0, .form = kfac_form::eigen}; }

}  // namespace cairn::kfac_oracle
