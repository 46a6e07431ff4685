// K-FAC against an explicit solve of the Fisher block, built by loops in double.

#include "catch.hpp"

#include <cairn/comm/self.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/train/curvature.hpp>

#include <cmath>
#include <vector>

namespace cairn {

namespace {

/// A layer with its factors by loops: rows ā (in) and g (out) of every example and position, of one group.
struct rows_by_loops {
    std::vector<std::vector<double>> a, g;
};

/// V of (S · A ⊗ G + γ I) V = ∇W, by a dense solve; ∇W (out, in).
std::vector<double> solve_block(const rows_by_loops& rows, double examples, double positions, double damping,
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
    const auto n = static_cast<index>(in * out);
    tensor<double> fisher({n, n}), rhs({n});
    for (std::size_t o = 0; o < out; ++o)
        for (std::size_t i = 0; i < in; ++i) {
            rhs[static_cast<index>(o * in + i)] = gradient[o * in + i];
            for (std::size_t p = 0; p < out; ++p)
                for (std::size_t k = 0; k < in; ++k)
                    fisher[static_cast<index>((o * in + i) * in * out + p * in + k)] =
                        positions * g[o * out + p] * a[i * in + k] + (o == p && i == k ? damping : 0);
        }
    const tensor<double> x = solve(cpu{}, fisher, rhs);
    return {x.data(), x.data() + x.size()};
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
    double worst = 0, scale = 1e-300;
    for (std::size_t i = 0; i < a.size(); ++i) {
        worst = std::max(worst, std::abs(a[i] - b[i]));
        scale = std::max(scale, std::abs(b[i]));
    }
    return worst / scale;
}

tensor<double> random_tensor(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream r{3, stream, 0};
    for (index i = 0; i < t.size(); ++i) t[i] = r.normal(static_cast<std::uint64_t>(i));
    return t;
}

/// One pass of a layer with gradient `dy`, and K-FAC's result for its only weight; the gradient before it in `gradient`.
template <class L>
std::vector<double> preconditioned(L layer, const tensor<double>& x, const tensor<double>& dy, kfac_config config,
                                   std::vector<double>& gradient) {
    sequential<double> net;
    net.add("layer", std::move(layer));
    arena<double> weights(net.params(), 5);
    weights.zero_grad();
    kfac<double> k(weights, config);
    pass p;
    p.curvature = k.begin_step();
    tape<double> saved;
    net.forward(x.clone(), saved, p);
    net.backward(dy.clone(), saved, p);
    const auto flat = [&] {
        const auto& all = weights.parameters();
        std::vector<double> rows;
        const index out = all[0].p->shape[0], width = all[0].p->shape.size() / out;
        for (index o = 0; o < out; ++o) {
            for (index i = 0; i < width; ++i) rows.push_back(all[0].p->grad[o * width + i]);
            if (all.size() > 1) rows.push_back(all[1].p->grad[o]);
        }
        return rows;
    };
    gradient = flat();
    k.precondition(static_cast<double>(x.extent(0)), 0.1);
    return flat();
}

kfac_config exact(double damping) { return {.damping = damping, .kl_clip = 0}; }

}  // namespace

TEST_CASE("kfac: linear layers equal the explicit solve", "[kfac]") {
    for (const bool bias : {true, false})
        for (const index positions : {1, 3})
            for (const index examples : {1, 2, 9}) {
                const index in = 4, out = 3;
                const shape s = positions == 1 ? shape{examples, in} : shape{examples, positions, in};
                const tensor<double> x = random_tensor(s, 1), dy = random_tensor(s.with(-1, out), 2);
                std::vector<double> gradient;
                const auto got =
                    preconditioned(linear<double>({.in = in, .out = out, .bias = bias}), x, dy, exact(0.03), gradient);
                rows_by_loops rows;
                for (index r = 0; r < examples * positions; ++r) {
                    std::vector<double> a(x.data() + r * in, x.data() + (r + 1) * in);
                    if (bias) a.push_back(1);
                    rows.a.push_back(a);
                    rows.g.emplace_back(dy.data() + r * out, dy.data() + (r + 1) * out);
                }
                INFO("bias " << bias << " positions " << positions << " examples " << examples);
                CHECK(distance(got, solve_block(rows, double(examples), double(positions), 0.03, gradient)) < 1e-9);
            }
}

TEST_CASE("kfac: convolutions of 1 to 3 axes, with stride, padding, dilation and groups", "[kfac]") {
    using config = conv<double>::config;
    struct problem {
        config c;
        shape in;
    };
    const std::vector<problem> all{
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
    for (const problem& p : all) {
        conv<double> layer(p.c);
        const conv_geometry g = layer.geometry(p.in);
        const tensor<double> x = random_tensor(p.in, 1), dy = random_tensor(layer.out_shape(p.in), 2);
        std::vector<double> gradient;
        const auto got = preconditioned(conv<double>(p.c), x, dy, exact(0.05), gradient);
        const index group_in = g.c_in / g.groups, group_out = g.c_out / g.groups;
        const auto row = static_cast<std::size_t>(group_in * g.kernel_points() + (p.c.bias ? 1 : 0));
        for (index q = 0; q < g.groups; ++q) {
            rows_by_loops rows;
            for (index n = 0; n < g.n; ++n)
                for (index od = 0; od < g.out[0]; ++od)
                    for (index oh = 0; oh < g.out[1]; ++oh)
                        for (index ow = 0; ow < g.out[2]; ++ow) {
                            std::vector<double> a, to;
                            for (index kd = 0; kd < g.kernel[0]; ++kd)
                                for (index kh = 0; kh < g.kernel[1]; ++kh)
                                    for (index kw = 0; kw < g.kernel[2]; ++kw)
                                        for (index c = 0; c < group_in; ++c) {
                                            const index d = od * g.stride[0] + kd * g.dilation[0] - g.pad[0];
                                            const index h = oh * g.stride[1] + kh * g.dilation[1] - g.pad[1];
                                            const index w = ow * g.stride[2] + kw * g.dilation[2] - g.pad[2];
                                            const bool inside =
                                                d >= 0 && d < g.in[0] && h >= 0 && h < g.in[1] && w >= 0 && w < g.in[2];
                                            a.push_back(
                                                inside ? x[(((n * g.in[0] + d) * g.in[1] + h) * g.in[2] + w) * g.c_in +
                                                           q * group_in + c]
                                                       : 0.0);
                                        }
                            if (p.c.bias) a.push_back(1);
                            const index point = ((n * g.out[0] + od) * g.out[1] + oh) * g.out[2] + ow;
                            for (index o = 0; o < group_out; ++o) to.push_back(dy[point * g.c_out + q * group_out + o]);
                            rows.a.push_back(a);
                            rows.g.push_back(to);
                        }
            const auto size = static_cast<std::ptrdiff_t>(row * static_cast<std::size_t>(group_out));
            const auto part = [&](const std::vector<double>& v) {
                return std::vector<double>(v.begin() + q * size, v.begin() + (q + 1) * size);
            };
            INFO(layer.describe() << ", group " << q);
            CHECK(distance(part(got), solve_block(rows, double(g.n), double(g.out_points()), 0.05, part(gradient))) <
                  1e-9);
        }
    }
}

TEST_CASE("kfac: one example of a linear layer is the exact Gauss-Newton block", "[kfac]") {
    // With one example A ⊗ G is the outer product of the gradient with itself: Sherman and Morrison give the inverse.
    const index in = 5, out = 4;
    const tensor<double> x = random_tensor({1, in}, 1), dy = random_tensor({1, out}, 2);
    std::vector<double> gradient;
    const double damping = 0.1;
    const auto got = preconditioned(linear<double>({.in = in, .out = out}), x, dy, exact(damping), gradient);
    double square = 0;
    for (const double g : gradient) square += g * g;
    std::vector<double> expected;
    for (const double g : gradient) expected.push_back(g / (damping + square));
    CHECK(distance(got, expected) < 1e-10);
}

TEST_CASE("kfac: the inverse form is the solve with factored damping", "[kfac]") {
    const index in = 4, out = 3, examples = 8;
    const tensor<double> x = random_tensor({examples, in}, 1), dy = random_tensor({examples, out}, 2);
    std::vector<double> gradient;
    kfac_config c = exact(0.01);
    c.form = kfac_form::inverse;
    const auto got = preconditioned(linear<double>({.in = in, .out = out, .bias = false}), x, dy, c, gradient);
    tensor<double> a = tensor<double>::zeros({in, in}), g = tensor<double>::zeros({out, out});
    double trace_a = 0, trace_g = 0;
    for (index r = 0; r < examples; ++r) {
        for (index i = 0; i < in; ++i)
            for (index k = 0; k < in; ++k) a[i * in + k] += x[r * in + i] * x[r * in + k] / double(examples);
        for (index i = 0; i < out; ++i)
            for (index k = 0; k < out; ++k) g[i * out + k] += dy[r * out + i] * dy[r * out + k] * double(examples);
    }
    for (index i = 0; i < in; ++i) trace_a += a[i * in + i] / double(in);
    for (index i = 0; i < out; ++i) trace_g += g[i * out + i] / double(out);
    const double pi = std::sqrt(trace_a / trace_g), root = std::sqrt(0.01);
    for (index i = 0; i < in; ++i) a[i * in + i] += pi * root;
    for (index i = 0; i < out; ++i) g[i * out + i] += root / pi;
    tensor<double> w({out, in}), transposed({in, out});
    std::copy(gradient.begin(), gradient.end(), w.data());
    const tensor<double> left = solve(cpu{}, g, w);
    for (index o = 0; o < out; ++o)
        for (index i = 0; i < in; ++i) transposed[i * out + o] = left[o * in + i];
    const tensor<double> both = solve(cpu{}, a, transposed);
    std::vector<double> expected;
    for (index o = 0; o < out; ++o)
        for (index i = 0; i < in; ++i) expected.push_back(both[i * out + o]);
    CHECK(distance(got, expected) < 1e-9);
}

TEST_CASE("kfac: KL clip scales all layers by one number", "[kfac]") {
    const tensor<double> x = random_tensor({6, 4}, 1), dy = random_tensor({6, 3}, 2);
    std::vector<double> gradient, ignored;
    const auto whole = preconditioned(linear<double>({.in = 4, .out = 3}), x, dy, exact(0.01), gradient);
    kfac_config c = exact(0.01);
    c.kl_clip = 1e-4;
    const auto clipped = preconditioned(linear<double>({.in = 4, .out = 3}), x, dy, c, ignored);
    double product = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) product += whole[i] * gradient[i];
    const double scale = std::sqrt(1e-4 / (0.1 * 0.1 * product));
    REQUIRE(scale < 1);
    std::vector<double> expected;
    for (const double v : whole) expected.push_back(scale * v);
    CHECK(distance(clipped, expected) < 1e-10);
}

TEST_CASE("kfac: the running average has no start-up bias", "[kfac]") {
    running_factor<double> f(1);
    std::vector<double> batches{2, 5, 1, 7};
    double weight = 0, sum = 0;
    for (const double b : batches) {
        f.batch()[0] = b;
        CHECK(f.update(0.5, 0.9));
        weight = 0.9 * weight + 1;
        sum = 0.9 * sum + 0.5 * b;
        CHECK(f.average()[0] == Approx(sum / weight));
        CHECK(f.batch()[0] == 0);
    }
    f.batch()[0] = NAN;
    CHECK_FALSE(f.update(1, 0.9));
    CHECK(f.average()[0] == Approx(sum / weight));
}

TEST_CASE("kfac: several ranks take the step of one", "[kfac]") {
    const tensor<double> x = random_tensor({12, 6, 6, 2}, 1), dy = random_tensor({12, 5}, 2);
    // Two steps on this rank's part of the batch; the gradients after the second.
    const auto steps_of = [&](any_communicator& c, kfac_form form) {
        sequential<double> net;
        net.add("conv", conv<double>({.in = 2, .out = 4, .kernel = 3, .stride = 2}));
        net.add("rows", flatten<double>());
        net.add("linear", linear<double>({.in = 16, .out = 5}));
        arena<double> weights(net.params(), 5);
        kfac_config config = exact(0.05);
        config.form = form;
        config.factor_every = config.decompose_every = 1;
        config.kl_clip = 1e-3;
        kfac<double> k(weights, config);
        const shard mine = shard_of(12, c.size(), c.rank());
        const auto part = [&](const tensor<double>& t) {
            return t.slice(mine.begin * (t.size() / 12), t.shape().with(0, mine.count)).clone();
        };
        for (int step = 0; step < 2; ++step) {
            weights.zero_grad();
            pass p;
            p.curvature = k.begin_step();
            tape<double> saved;
            net.forward(part(x), saved, p);
            net.backward(part(dy), saved, p);
            all_reduce(c, weights.grads().span());
            sum_statistics(c, k);
            k.precondition(12, 0.1);
        }
        return std::vector<double>(weights.grads().data(), weights.grads().data() + weights.grads().size());
    };
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
        any_communicator alone(self_communicator{});
        const std::vector<double> one = steps_of(alone, form);
        for (const int ranks : {2, 3, 4})
            run_ranks(ranks, [&](threads_communicator& c) {
                any_communicator any(c.split(0, c.rank()));
                const double off = distance(steps_of(any, form), one);
                require(off < 1e-9, "rank ", c.rank(), " of ", ranks, " is off by ", off);
            });
    }
}

TEST_CASE("kfac: constant and zero activations, settings that make no sense", "[kfac]") {
    const tensor<double> zero = tensor<double>::zeros({4, 3}), dy = random_tensor({4, 2}, 2);
    std::vector<double> gradient;
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
        kfac_config c = exact(1e-3);
        c.form = form;
        for (const double v : preconditioned(linear<double>({.in = 3, .out = 2}), zero, dy, c, gradient))
            CHECK(std::isfinite(v));
        for (const double v :
             preconditioned(linear<double>({.in = 3, .out = 2}), zero, tensor<double>::zeros({4, 2}), c, gradient))
            CHECK(v == 0);
    }
    CHECK_THROWS_WITH(preconditioned(linear<double>({.in = 3, .out = 2}), zero, dy, exact(0), gradient),
                      Catch::Contains("damping 0"));
    kfac_config c = exact(1);
    c.max_size = 3;  // with the bias there are 4 inputs: left alone
    CHECK(preconditioned(linear<double>({.in = 3, .out = 2}), zero, dy, c, gradient) == gradient);
    c = exact(1);
    c.skip = {"layer"};
    CHECK(preconditioned(linear<double>({.in = 3, .out = 2}), zero, dy, c, gradient) == gradient);
}

}  // namespace cairn
