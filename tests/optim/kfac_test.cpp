// K-FAC against an explicit solve of the Fisher block, built by loops in double.

#include "catch.hpp"
#include "device/cpu/kernel_numbers.hpp"
#include "device/cuda/curvature_laws.hpp"
#include "optim/kfac_oracle.hpp"

#include <cairn/device/cpu/linalg.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/graph_conv.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace cairn {

using namespace kfac_oracle;

TEST_CASE("kfac: linear layers equal the explicit solve", "[kfac]") {
    for (const bool bias : {true, false})
        for (const index_t positions : {1, 3})
            for (const index_t examples : {1, 2, 9}) {
                const index_t in = 4, out = 3;
                const shape s = positions == 1 ? shape{examples, in} : shape{examples, positions, in};
                const tensor<double> x = random_tensor(s, 1), dy = random_tensor(s.with(-1, out), 2);
                std::vector<double> gradient;
                const auto got =
                    preconditioned(linear<double>({.in = in, .out = out, .bias = bias}), x, dy, exact(0.03), gradient);
                rows_by_loops rows;
                for (index_t r = 0; r < examples * positions; ++r) {
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
    for (const auto& p : convolutions_of_all_kinds<conv<double>>()) {
        conv<double> layer(p.c);
        const conv_geometry g = layer.geometry(p.in);
        const tensor<double> x = random_tensor(p.in, 1), dy = random_tensor(layer.output_shape(p.in), 2);
        std::vector<double> gradient;
        const auto got = preconditioned(conv<double>(p.c), x, dy, exact(0.05), gradient);
        const index_t group_in = g.c_in / g.groups, group_out = g.c_out / g.groups;
        const auto row = static_cast<std::size_t>(group_in * g.kernel_points() + (p.c.bias ? 1 : 0));
        for (index_t q = 0; q < g.groups; ++q) {
            const rows_by_loops rows = rows_of_conv(x, dy, g, p.c.bias, q);
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

TEST_CASE("kfac: kernel points taken as uncorrelated are blocks of their own, with the points of the input in A",
          "[kfac]") {
    using config = conv<double>::config;
    struct problem {
        config c;
        shape in;
    };
    const std::vector<problem> all{
        {{.in = 3, .out = 2, .kernel = {2, 3}, .stride = {2, 1}, .pad = {0, 1}, .bias = false}, {2, 5, 4, 3}},
        {{.in = 4, .out = 6, .kernel = 2, .dilation = 2, .groups = 2, .bias = false}, {3, 4, 4, 4}},
        {{.in = 2, .out = 2, .kernel = 2, .stride = 2, .dims = 3}, {2, 2, 4, 2, 2}},  // its bias keeps its gradient
    };
    for (const problem& p : all) {
        conv<double> layer(p.c);
        const conv_geometry g = layer.geometry(p.in);
        const tensor<double> x = random_tensor(p.in, 1), dy = random_tensor(layer.output_shape(p.in), 2);
        std::vector<double> gradient;
        kfac_config how = exact(0.05);
        how.spatial = kfac_spatial::uncorrelated;
        const auto got = preconditioned(conv<double>(p.c), x, dy, how, gradient);
        const auto in = static_cast<std::size_t>(g.c_in / g.groups), out = static_cast<std::size_t>(g.c_out / g.groups);
        const auto taps = static_cast<std::size_t>(g.kernel_points()), row = taps * in + (p.c.bias ? 1 : 0);
        kfac_config limited = exact(0.05);
        limited.max_size = index_t(row) - 1;  // so are those whose factor is too large
        CHECK(preconditioned(conv<double>(p.c), x, dy, limited, gradient) == got);
        limited.max_size = index_t(row);
        CHECK(preconditioned(conv<double>(p.c), x, dy, limited, gradient) != got);
        const auto points = static_cast<std::size_t>(g.n * g.in_points()), groups = static_cast<std::size_t>(g.groups);
        const auto outputs = static_cast<std::size_t>(g.n * g.out_points());
        for (std::size_t q = 0; q < groups; ++q) {
            std::vector<double> a(in * in), of_g(out * out);
            for (std::size_t r = 0; r < points; ++r)
                for (std::size_t i = 0; i < in; ++i)
                    for (std::size_t k = 0; k < in; ++k) {
                        const double* const point = x.data() + (r * groups + q) * in;
                        a[i * in + k] += point[i] * point[k] / double(points);
                    }
            for (std::size_t r = 0; r < outputs; ++r)
                for (std::size_t i = 0; i < out; ++i)
                    for (std::size_t k = 0; k < out; ++k) {
                        const double* const point = dy.data() + (r * groups + q) * out;
                        of_g[i * out + k] += double(g.n * g.n) * point[i] * point[k] / double(outputs);
                    }
            for (std::size_t t = 0; t < taps; ++t) {
                const auto part = [&](const std::vector<double>& v) {
                    std::vector<double> w;
                    for (std::size_t o = 0; o < out; ++o)
                        for (std::size_t i = 0; i < in; ++i) w.push_back(v[(q * out + o) * row + t * in + i]);
                    return w;
                };
                INFO(layer.describe() << ", group " << q << ", point " << t << " of the kernel");
                CHECK(distance(part(got),
                               solve_kronecker(a, in, of_g, out, double(g.out_points()), 0.05, part(gradient))) < 1e-9);
            }
            if (p.c.bias)
                for (std::size_t o = 0; o < out; ++o)
                    CHECK(got[(q * out + o) * row + row - 1] == gradient[(q * out + o) * row + row - 1]);
        }
    }
}

TEST_CASE("kfac: sums of products are whole and symmetric, whatever strips they are made of", "[kfac]") {
    for (const index_t width : {3, 255, 256, 300, 600})
        for (const bool ones : {false, true}) {
            const index_t count = 7, stride = width + 2, n = width + (ones ? 1 : 0);
            const tensor<double> rows = random_tensor({count, stride}, 1);
            tensor<double> sum = random_tensor({n, n}, 2);
            for (index_t r = 0; r < n; ++r)
                for (index_t c = 0; c < r; ++c) sum[r * n + c] = sum[c * n + r];
            const tensor<double> before = sum.clone();
            add_outer_products(count, width, rows.data(), stride, sum, 0.5);
            double worst = 0;
            for (index_t r = 0; r < n; ++r)
                for (index_t c = 0; c < n; ++c) {
                    double expected = before[r * n + c];
                    for (index_t k = 0; k < count; ++k)
                        expected +=
                            0.5 * (r < width ? rows[k * stride + r] : 1) * (c < width ? rows[k * stride + c] : 1);
                    worst = std::max(worst, std::abs(sum[r * n + c] - expected));
                }
            INFO(width << (ones ? " and ones" : ""));
            CHECK(worst < 1e-12);
        }
}

TEST_CASE("kfac: a pass for statistics alone leaves gradients as they are", "[kfac]") {
    const auto factors = [](bool gradients) {
        sequential<double> net;
        net.add("conv", conv<double>({.in = 2, .out = 3, .kernel = 2}));
        net.add("rows", flatten<double>());
        net.add("linear", linear<double>({.in = 12, .out = 2}));
        arena<double> weights(net.parameters(), 5);
        weights.zero_grad();
        kfac<double> k(weights, exact(0.05));
        pass_context p{.weight_gradient = gradients};
        p.curvature = k.begin_step();
        saved_tensors<double> saved;
        net.forward(random_tensor({4, 3, 3, 2}, 1), saved, p);
        net.backward(random_tensor({4, 2}, 2), saved, p);
        std::vector<double> sums;
        for (auto& b : k.blocks())
            b.each_factor([&](kfac_factor<double>& f, char) {
                const auto s = f.statistics.batch().span();
                sums.insert(sums.end(), s.begin(), s.end());
            });
        const auto grads = weights.grads().span();
        CHECK(std::ranges::any_of(grads, [](double g) { return g != 0; }) == gradients);
        return sums;
    };
    CHECK(factors(true) == factors(false));
}

TEST_CASE("kfac: one example of a linear layer is the exact Gauss-Newton block", "[kfac]") {
    // With one example A ⊗ G is the outer product of the gradient with itself: Sherman and Morrison give the inverse.
    const index_t in = 5, out = 4;
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
    const index_t in = 4, out = 3, examples = 8;
    const tensor<double> x = random_tensor({examples, in}, 1), dy = random_tensor({examples, out}, 2);
    std::vector<double> gradient;
    kfac_config c = exact(0.01);
    c.form = kfac_form::inverse;
    const auto got = preconditioned(linear<double>({.in = in, .out = out, .bias = false}), x, dy, c, gradient);
    tensor<double> a = tensor<double>::zeros({in, in}), g = tensor<double>::zeros({out, out});
    double trace_a = 0, trace_g = 0;
    for (index_t r = 0; r < examples; ++r) {
        for (index_t i = 0; i < in; ++i)
            for (index_t k = 0; k < in; ++k) a[i * in + k] += x[r * in + i] * x[r * in + k] / double(examples);
        for (index_t i = 0; i < out; ++i)
            for (index_t k = 0; k < out; ++k) g[i * out + k] += dy[r * out + i] * dy[r * out + k] * double(examples);
    }
    for (index_t i = 0; i < in; ++i) trace_a += a[i * in + i] / double(in);
    for (index_t i = 0; i < out; ++i) trace_g += g[i * out + i] / double(out);
    const double pi = std::sqrt(trace_a / trace_g), root = std::sqrt(0.01);
    for (index_t i = 0; i < in; ++i) a[i * in + i] += pi * root;
    for (index_t i = 0; i < out; ++i) g[i * out + i] += root / pi;
    tensor<double> w({out, in}), transposed({in, out});
    std::copy(gradient.begin(), gradient.end(), w.data());
    const tensor<double> left = solve(cpu{}, g, w);
    for (index_t o = 0; o < out; ++o)
        for (index_t i = 0; i < in; ++i) transposed[i * out + o] = left[o * in + i];
    const tensor<double> both = solve(cpu{}, a, transposed);
    std::vector<double> expected;
    for (index_t o = 0; o < out; ++o)
        for (index_t i = 0; i < in; ++i) expected.push_back(both[i * out + o]);
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
        f.update(0.5, 0.9);
        weight = 0.9 * weight + 1;
        sum = 0.9 * sum + 0.5 * b;
        CHECK(f.average()[0] == Approx(sum / weight));
        CHECK(f.batch()[0] == 0);
    }
    f.batch()[0] = NAN;
    double broken = 0, trace = -1;
    f.nonfinite_into(&broken);
    CHECK(broken == 1);
    running_factor<double>(2).trace_into(&trace);
    CHECK(trace == -1);  // of no average: stays
    f.trace_into(&trace);
    CHECK(trace == Approx(sum / weight));
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
    c.skip = {"layer"};
    CHECK(preconditioned(linear<double>({.in = 3, .out = 2}), zero, dy, c, gradient) == gradient);
}

namespace {

/// Each example's rows joined: inputs to their mean, output gradients to their sum.
rows_by_loops joined(const rows_by_loops& rows, std::size_t positions) {
    rows_by_loops joined;
    for (std::size_t e = 0; e < rows.a.size() / positions; ++e) {
        std::vector<double> a(rows.a[0].size()), g(rows.g[0].size());
        for (std::size_t t = 0; t < positions; ++t) {
            for (std::size_t i = 0; i < a.size(); ++i) a[i] += rows.a[e * positions + t][i] / double(positions);
            for (std::size_t i = 0; i < g.size(); ++i) g[i] += rows.g[e * positions + t][i];
        }
        joined.a.push_back(a);
        joined.g.push_back(g);
    }
    return joined;
}

}  // namespace

TEST_CASE("kfac: the reduce convention joins the rows of an example first", "[kfac]") {
    const index_t in = 3, out = 2, examples = 5, positions = 4;
    const tensor<double> x = random_tensor({examples, positions, in}, 1),
                         dy = random_tensor({examples, positions, out}, 2);
    std::vector<double> gradient;
    kfac_config c = exact(0.03);
    c.sharing = weight_sharing::reduce;
    const auto got = preconditioned(linear<double>({.in = in, .out = out}), x, dy, c, gradient);
    const rows_by_loops rows = joined(rows_of_linear(x, dy, in, out), positions);
    CHECK(distance(got, solve_block(rows, examples, 1, 0.03, gradient)) < 1e-9);

    // A convolution whose kernel covers the image is a linear layer of one position; here it has two, with a stride.
    const tensor<double> image = random_tensor({examples, 4, 2}, 3), to = random_tensor({examples, 2, 3}, 4);
    const auto conv_got =
        preconditioned(conv<double>({.in = 2, .out = 3, .kernel = 2, .stride = 2, .dims = 1}), image, to, c, gradient);
    const rows_by_loops patches = joined(rows_of_linear(image, to, 4, 3), 2);
    CHECK(distance(conv_got, solve_block(patches, examples, 1, 0.03, gradient)) < 1e-9);
}

TEST_CASE("kfac: the scaling of kfac-pytorch", "[kfac]") {
    // A = 0.95 I + 0.05 Σ ā āᵀ / (N S d²), G = 0.95 I + 0.05 Σ dy dyᵀ / (N S d²), V of (A ⊗ G + γ I) V = ∇W; d is S of
    // a convolution and 1 of a linear layer.
    kfac_config c = exact(0.03);
    c.scaling = kfac_scaling::kfac_pytorch;
    const auto check = [&](auto layer, const tensor<double>& x, const tensor<double>& dy, const rows_by_loops& rows,
                           double divisor) {
        std::vector<double> gradient;
        const auto got = preconditioned(std::move(layer), x, dy, c, gradient);
        const std::size_t in = rows.a[0].size(), out = rows.g[0].size();
        const auto factor = [&](const std::vector<std::vector<double>>& r) {
            std::vector<double> f;
            for (std::size_t i = 0; i < r[0].size(); ++i)
                for (std::size_t k = 0; k < r[0].size(); ++k) {
                    double sum = 0;
                    for (const auto& row : r) sum += row[i] * row[k] / (double(r.size()) * divisor * divisor);
                    f.push_back(0.05 * sum + (i == k ? 0.95 : 0));
                }
            return f;
        };
        CHECK(distance(got, solve_kronecker(factor(rows.a), in, factor(rows.g), out, 1, 0.03, gradient)) < 1e-9);
    };
    const index_t examples = 5;
    const tensor<double> image = random_tensor({examples, 4, 2}, 3), dy = random_tensor({examples, 2, 3}, 4);
    check(conv<double>({.in = 2, .out = 3, .kernel = 2, .stride = 2, .dims = 1}), image, dy,
          rows_of_linear(image, dy, 4, 3), 2);
    const tensor<double> x = random_tensor({examples, 4, 3}, 5), to = random_tensor({examples, 4, 2}, 6);
    check(linear<double>({.in = 3, .out = 2}), x, to, rows_of_linear(x, to, 3, 2), 1);
}

TEST_CASE("kfac: a graph convolution is an affine map of the sums of its nodes", "[kfac]") {
    // Three nodes: 0 - 1 - 2, with weights.
    csr_matrix<float> edges;
    edges.rows = edges.columns = 3;
    edges.begin = {0, 1, 3, 4};
    edges.column = {1, 0, 2, 1};
    edges.value = {1, 1, 2, 2};
    const double degree[] = {2, 4, 3};
    const double with_loops[3][3] = {{1, 1, 0}, {1, 1, 2}, {0, 2, 1}};
    const index_t graphs = 4, nodes = 3, in = 4, out = 2;
    const tensor<double> x = random_tensor({graphs, nodes, in}, 1), dy = random_tensor({graphs, nodes, out}, 2);
    for (const bool bias : {true, false}) {
        rows_by_loops rows;
        for (index_t n = 0; n < graphs; ++n)
            for (index_t r = 0; r < nodes; ++r) {
                std::vector<double> a(std::size_t(in), 0.0);
                for (index_t c = 0; c < nodes; ++c)
                    for (index_t i = 0; i < in; ++i)
                        a[std::size_t(i)] +=
                            with_loops[r][c] / std::sqrt(degree[r] * degree[c]) * x[(n * nodes + c) * in + i];
                if (bias) a.push_back(1);
                rows.a.push_back(a);
                rows.g.emplace_back(dy.data() + (n * nodes + r) * out, dy.data() + (n * nodes + r + 1) * out);
            }
        // ∇W = Σ g aᵀ, and the solve of it; the layer has W (in, out), and its bias apart.
        std::vector<double> gradient(std::size_t(out) * rows.a[0].size());
        for (std::size_t r = 0; r < rows.a.size(); ++r)
            for (std::size_t o = 0; o < std::size_t(out); ++o)
                for (std::size_t i = 0; i < rows.a[0].size(); ++i)
                    gradient[o * rows.a[0].size() + i] += rows.g[r][o] * rows.a[r][i];
        const auto expected = solve_block(rows, double(graphs), double(nodes), 0.03, gradient);

        sequential<double> net;
        net.add("layer",
                graph_conv<double>({.in = in, .out = out, .graph = graph_operator::normalised(edges), .bias = bias}));
        arena<double> weights(net.parameters(), 5);
        weights.zero_grad();
        kfac<double> k(weights, exact(0.03));
        pass_context p;
        p.curvature = k.begin_step();
        saved_tensors<double> saved;
        net.forward(x.clone(), saved, p);
        net.backward(dy.clone(), saved, p);
        k.precondition(double(graphs), 0.1);
        std::vector<double> got;
        const auto& all = weights.parameters();
        for (index_t o = 0; o < out; ++o) {
            for (index_t i = 0; i < in; ++i) got.push_back(all[0].p->grad[i * out + o]);
            if (bias) got.push_back(all[1].p->grad[o]);
        }
        CHECK(distance(got, expected) < 1e-9);
        CHECK(k.scope() == concat("kfac preconditions ", in * out + (bias ? out : 0), " of ",
                                  in * out + (bias ? out : 0), " parameters, those of 1 layer"));
    }
}

TEST_CASE("kfac: lookups have a diagonal factor, and so have dimensions beyond the limit", "[kfac]") {
    const index_t entries = 6, width = 3, examples = 4, positions = 3;
    tensor<double> ids({examples, positions});
    for (index_t i = 0; i < ids.size(); ++i)
        ids[i] = double(i * 5 % entries == 4 ? 0 : i * 5 % entries);  // 4 is never used
    const tensor<double> dy = random_tensor({examples, positions, width}, 2);
    for (const kfac_form form : {kfac_form::eigen, kfac_form::inverse}) {
        std::vector<double> gradient;
        kfac_config c = exact(0.02);
        c.form = form;
        const auto got = preconditioned(embedding<double>({.num_embeddings = entries, .embedding_dim = width}), ids, dy,
                                        c, gradient);
        // Here rows of the weight are the inputs: solve for the transpose.
        rows_by_loops rows;
        for (index_t r = 0; r < ids.size(); ++r) {
            rows.a.emplace_back(std::size_t(entries), 0.0);
            rows.a.back()[std::size_t(ids[r])] = 1;
            rows.g.emplace_back(dy.data() + r * width, dy.data() + (r + 1) * width);
        }
        const auto transposed = [&](const std::vector<double>& v, index_t from, index_t to) {
            std::vector<double> t(v.size());
            for (index_t i = 0; i < from; ++i)
                for (index_t k = 0; k < to; ++k) t[std::size_t(k * from + i)] = v[std::size_t(i * to + k)];
            return t;
        };
        if (form == kfac_form::eigen) {
            const auto expected = solve_block(rows, examples, positions, 0.02, transposed(gradient, entries, width));
            CHECK(distance(got, transposed(expected, width, entries)) < 1e-9);
        } else {
            for (const double v : got) CHECK(std::isfinite(v));
        }
    }
    // A linear layer of 4 inputs (with the bias) and 2 outputs, limit 3: A is cut to its diagonal, G is whole.
    const tensor<double> x = random_tensor({8, 3}, 1), to = random_tensor({8, 2}, 2);
    std::vector<double> gradient;
    kfac_config c = exact(0.05);
    c.max_size = 3;
    const auto got = preconditioned(linear<double>({.in = 3, .out = 2}), x, to, c, gradient);
    const rows_by_loops rows = rows_of_linear(x, to, 3, 2);
    tensor<double> fisher = tensor<double>::zeros({8, 8}), rhs({8});
    for (index_t o = 0; o < 2; ++o)
        for (index_t i = 0; i < 4; ++i) {
            rhs[o * 4 + i] = gradient[std::size_t(o * 4 + i)];
            double a = 0;
            for (const auto& row : rows.a) a += row[std::size_t(i)] * row[std::size_t(i)] / 8;
            for (index_t p = 0; p < 2; ++p) {
                double g = 0;
                for (const auto& row : rows.g) g += 64 * row[std::size_t(o)] * row[std::size_t(p)] / 8;
                fisher(o * 4 + i, p * 4 + i) = a * g + (o == p ? 0.05 : 0);
            }
        }
    const tensor<double> expected = solve(cpu{}, fisher, rhs);
    CHECK(distance(got, {expected.data(), expected.data() + 8}) < 1e-9);
}

TEST_CASE("kfac: whole and diagonal factors, in every combination and both forms", "[kfac]") {
    const index_t out = 3, in = 4;
    const double positions = 5, damping = 0.03, damping_a = 0.2, damping_g = 0.07;
    const tensor<double> v = random_tensor({out, in}, 1);
    const auto product = [](index_t n, std::uint32_t seed) {  // R Rᵀ
        const tensor<double> r = random_tensor({n, n}, seed);
        tensor<double> sum = tensor<double>::zeros({n, n});
        for (index_t i = 0; i < n; ++i)
            for (index_t k = 0; k < n; ++k)
                for (index_t j = 0; j < n; ++j) sum(i, k) += r(i, j) * r(k, j);
        return sum;
    };
    for (const bool whole_a : {true, false})
        for (const bool whole_g : {true, false})
            for (const bool inverse : {true, false}) {
                CAPTURE(whole_a, whole_g, inverse);
                // The decomposition, and the matrix that it stands for.
                const auto decomposed = [&](const tensor<double>& m, bool whole, double by,
                                            std::vector<double>& matrix) {
                    const index_t n = m.extent(0);
                    tensor<double> diagonal({n});
                    for (index_t i = 0; i < n; ++i) diagonal[i] = m(i, i);
                    for (index_t i = 0; i < n; ++i)
                        for (index_t k = 0; k < n; ++k)
                            matrix.push_back((i == k || whole ? m(i, k) : 0) + (i == k && inverse ? by : 0));
                    const tensor<double>& factor = whole ? m : diagonal;
                    return inverse ? damped_inverse_of(factor, by) : eigen_decomposition_of(factor);
                };
                std::vector<double> a, g;
                tensor<double> got({out, in});
                precondition(decomposed(product(in, 2), whole_a, damping_a, a),
                             decomposed(product(out, 3), whole_g, damping_g, g),
                             inverse ? kfac_form::inverse : kfac_form::eigen, positions, damping, out, in, v.data(),
                             got.data());
                const std::vector<double> expected =
                    solve_kronecker(a, in, g, out, positions, inverse ? 0 : damping, {v.data(), v.data() + v.size()});
                CHECK(distance({got.data(), got.data() + got.size()}, expected) < 1e-9);
            }
}

TEST_CASE("kfac: scale and shift of normalisation layers are a diagonal", "[kfac]") {
    kfac_config c = exact(0.1);
    c.norm_layers = true;
    const index_t examples = 6, points = 3, channels = 5;  // 5: rows are no whole packs of lanes
    const tensor<double> x = random_tensor({examples, points, channels}, 1),
                         dy = random_tensor({examples, points, channels}, 2);
    const auto check = [&](const std::vector<double>& got, const std::vector<double>& gradient, auto&& normal,
                           auto&& arriving) {
        for (index_t ch = 0; ch < channels; ++ch) {
            double scale = 0, shift = 0;  // E[(N Σ_t dy x̂)²], E[(N Σ_t dy)²]
            for (index_t n = 0; n < examples; ++n) {
                double of_scale = 0, of_shift = 0;
                for (index_t t = 0; t < points; ++t) {
                    const index_t e = (n * points + t) * channels + ch;
                    of_scale += arriving(e) * normal(e);
                    of_shift += arriving(e);
                }
                scale += double(examples) * of_scale * of_scale;
                shift += double(examples) * of_shift * of_shift;
            }
            const std::size_t at = 2 * std::size_t(ch);  // preconditioned() lists scale and shift of a channel together
            CHECK(got[at] == Approx(gradient[at] / (scale + 0.1)));
            CHECK(got[at + 1] == Approx(gradient[at + 1] / (shift + 0.1)));
        }
    };
    std::vector<double> gradient;
    std::vector<double> mean(channels), deviation(channels);
    for (index_t ch = 0; ch < channels; ++ch) {
        const auto k = std::size_t(ch);
        for (index_t e = ch; e < x.size(); e += channels) mean[k] += x[e] / double(examples * points);
        for (index_t e = ch; e < x.size(); e += channels)
            deviation[k] += (x[e] - mean[k]) * (x[e] - mean[k]) / double(examples * points);
        deviation[k] = std::sqrt(deviation[k] + 1e-5);
    }
    const auto batch_normal = [&](index_t e) {
        return (x[e] - mean[std::size_t(e % channels)]) / deviation[std::size_t(e % channels)];
    };
    auto got = preconditioned(batch_norm<double>({.channels = channels, .act = activation::relu}), x, dy, c, gradient);
    check(got, gradient, batch_normal, [&](index_t e) { return batch_normal(e) > 0 ? dy[e] : 0.0; });
    got = preconditioned(layer_norm<double>({.features = channels}), x, dy, c, gradient);
    const auto row_normal = [&](index_t e) {
        const double* const row = x.data() + e / channels * channels;
        double m = 0, v = 0;
        for (index_t k = 0; k < channels; ++k) m += row[k] / double(channels);
        for (index_t k = 0; k < channels; ++k) v += (row[k] - m) * (row[k] - m) / double(channels);
        return (x[e] - m) / std::sqrt(v + 1e-5);
    };
    check(got, gradient, row_normal, [&](index_t e) { return dy[e]; });
}

TEST_CASE("kfac: statistics of a sample of the rows are those rows' statistics", "[kfac]") {
    const index_t in = 3, out = 2, examples = 7, positions = 5;
    const tensor<double> x = random_tensor({examples, positions, in}, 1),
                         dy = random_tensor({examples, positions, out}, 2);
    const rows_by_loops all = rows_of_linear(x, dy, in, out);
    for (const auto& [every, each] : {std::pair<index_t, index_t>{2, 1}, {1, 3}, {3, 2}}) {
        kfac_config c = exact(0.03);
        c.sample = {.examples = every, .positions = each};
        std::vector<double> gradient;
        const auto got = preconditioned(linear<double>({.in = in, .out = out}), x, dy, c, gradient);
        rows_by_loops some;
        for (index_t e = 0; e < examples; e += every)
            for (index_t t = 0; t < positions; t += each) {
                some.a.push_back(all.a[std::size_t(e * positions + t)]);
                some.g.push_back(all.g[std::size_t(e * positions + t)]);
            }
        // G of k rows is N² / k Σ dy dyᵀ: solve_block divides by examples · positions, so hand it dy in that
        // proportion.
        const double k = double(some.a.size()), full = double(examples * positions);
        for (auto* rows : {&some.a, &some.g})
            for (auto& row : *rows)
                for (double& v : row) v *= std::sqrt(full / k);
        INFO("every " << every << "th example, every " << each << "th position");
        CHECK(distance(got, solve_block(some, examples, positions, 0.03, gradient)) < 1e-9);
    }
}

TEST_CASE("kfac: statistics are of as many positions as factors need, of the first batch of all", "[kfac]") {
    CHECK(position_stride({}, 0, 1024, 16) == 1);
    CHECK(position_stride({}, 128, 1024, 145) == 451);  // of 131072 rows 290, two for each dimension
    CHECK(position_stride({}, 128, 64, 577) == 7);
    CHECK(position_stride({}, 32, 128, 512) == 4);
    CHECK(position_stride({}, 16, 64, 577) == 1);
    CHECK(position_stride({}, 1024, 1, 10) == 1);
    CHECK(position_stride({}, 4096, 4, 10) == 4);
    CHECK(position_stride({.sample = {.positions = 7}}, 128, 1024, 145) == 7);

    const index_t in = 3, out = 2, examples = 7, positions = 5;
    sequential<double> net;
    net.add("layer", linear<double>({.in = in, .out = out}));
    arena<double> weights(net.parameters(), 5);
    kfac_config c = exact(0.03);
    c.factor_decay = 0;
    c.factor_update_interval = c.inverse_update_interval = 1;
    c.rows_per_dimension = 4;
    kfac<double> k(weights, c);
    for (int step = 0; step < 2; ++step) {
        const tensor<double> x = random_tensor({examples, positions, in}, std::uint32_t(step)),
                             dy = random_tensor({examples, positions, out}, 9);
        const rows_by_loops all = rows_of_linear(x, dy, in, out);
        pass_context p;
        p.curvature = k.begin_step();
        saved_tensors<double> saved;
        weights.zero_grad();
        net.forward(x.clone(), saved, p);
        net.backward(dy.clone(), saved, p);
        k.precondition(double(examples), 0.1);
        std::vector<double> expected(16, 0.0);
        index_t rows = 0;
        for (index_t e = 0; e < examples; ++e)
            for (index_t t = step; t < positions; t += 1 + step, ++rows)  // 35 rows, 16 are enough: one in two
                for (std::size_t i = 0; i < 16; ++i)
                    expected[i] +=
                        all.a[std::size_t(e * positions + t)][i / 4] * all.a[std::size_t(e * positions + t)][i % 4];
        for (double& v : expected) v /= double(rows);
        const tensor<double>& average = k.blocks()[0].a[0].statistics.average();
        CHECK(distance({average.data(), average.data() + 16}, expected) < 1e-12);
    }
}

TEST_CASE("kfac: rows that are copied take a few megabytes, however many an example has", "[kfac]") {
    using layer = conv<float>;
    const shape in{1, 64, 64, 64, 4};
    const conv_geometry g = layer({.in = 4, .out = 16, .kernel = 3, .pad = 1, .dims = 3}).geometry(in);
    const tensor<float> x = tensor<float>::zeros(in);
    const curvature_samples<float> rows{.kind = rows_kind::convolution,
                                        .examples = 1,
                                        .positions = g.out_points(),
                                        .in = 27 * 4,
                                        .out = 16,
                                        .x = x.data(),
                                        .conv = g};
    for (const weight_sharing sharing : {weight_sharing::expand, weight_sharing::reduce}) {
        tensor<float> a = tensor<float>::zeros({27 * 4 + 1, 27 * 4 + 1});
        memory_pool& pool = memory_pool::host();
        pool.reset_peaks();
        const index_t before = pool.total().live;
        add_rows_of_layer(rows, 0, &a, static_cast<tensor<float>*>(nullptr), sharing);
        CHECK(pool.total().peak - before < 16'000'000);  // all of them: 113 MB
    }
}

TEST_CASE("kfac: rows that are copied in pieces are those copied at once", "[kfac]") {
    const shape in{3, 5, 4, 2};
    conv<double> layer({.in = 2, .out = 3, .kernel = 2});
    const conv_geometry g = layer.geometry(in);
    const tensor<double> x = random_tensor(in, 1);
    const curvature_samples<double> rows{.kind = rows_kind::convolution,
                                         .examples = 3,
                                         .positions = g.out_points(),
                                         .in = 8,
                                         .out = 3,
                                         .x = x.data(),
                                         .conv = g};
    for (const weight_sharing sharing : {weight_sharing::expand, weight_sharing::reduce})
        for (const sample_strides& sample : {sample_strides{}, {2, 1}, {1, 5}, {2, 5, 1}}) {
            const auto sum_in_pieces = [&](index_t most) {
                tensor<double> a = tensor<double>::zeros({9, 9});
                const index_t usual = std::exchange(numbers_gathered(cpu{}), most);
                add_rows_of_layer(rows, 0, &a, static_cast<tensor<double>*>(nullptr), sharing, sample);
                numbers_gathered(cpu{}) = usual;
                return std::vector<double>(a.data(), a.data() + a.size());
            };
            const auto whole = sum_in_pieces(1 << 20);
            for (const index_t most : {1, 8, 40, 100}) {  // less than a row; within an example; across two
                INFO(most << " numbers, every " << sample.examples << "th, " << sample.positions << "th");
                CHECK(distance(sum_in_pieces(most), whole) < 1e-12);
            }
        }
}

TEST_CASE("kfac: norm constraint and grafting", "[kfac]") {
    const tensor<double> x = random_tensor({6, 4}, 1), dy = random_tensor({6, 3}, 2);
    const auto length = [](const std::vector<double>& v) {
        double sum = 0;
        for (const double e : v) sum += e * e;
        return std::sqrt(sum);
    };
    std::vector<double> gradient;
    kfac_config c = exact(0.01);
    c.norm_limit = 1e-3;
    CHECK(length(preconditioned(linear<double>({.in = 4, .out = 3}), x, dy, c, gradient)) == Approx(1e-3 / 0.1));
    c = exact(0.01);
    c.length = direction_length::of_gradient;
    const auto grafted = preconditioned(linear<double>({.in = 4, .out = 3}), x, dy, c, gradient);
    CHECK(length(grafted) == Approx(length(gradient)));
    CHECK(distance(grafted, gradient) > 0.1);
    c.length = direction_length::unit;  // 12 weights and 3 biases
    CHECK(length(preconditioned(linear<double>({.in = 4, .out = 3}), x, dy, c, gradient)) == Approx(std::sqrt(15.0)));
}

TEST_CASE("kfac: a layer's parameters are marked when it makes itself known, if directions are of unit length",
          "[kfac]") {
    for (const direction_length length : {direction_length::of_gradient, direction_length::unit}) {
        sequential<double> net;
        net.add("first", linear<double>({.in = 4, .out = 3}));
        net.add("second", linear<double>({.in = 3, .out = 2}));
        arena<double> weights(net.parameters(), 5);
        kfac_config c = exact(0.05);
        c.length = length;
        c.skip = {"second"};
        kfac<double> k(weights, c);
        pass_context p;
        p.curvature = k.discover();
        saved_tensors<double> saved;
        net.forward(random_tensor({6, 4}, 1), saved, p);
        net.backward(random_tensor({6, 2}, 2), saved, p);
        for (const auto& [name, of] : weights.parameters()) {
            CAPTURE(name);
            CHECK(of->unit_gradient == (length == direction_length::unit && name.starts_with("first")));
        }
    }
}

TEST_CASE("kfac: decompositions that are made meanwhile are used `inverse_staleness` steps later", "[kfac]") {
    // Each step's effect on a gradient of ones, with statistics that change from step to step.
    const auto run = [](std::int64_t lag) {
        sequential<double> net;
        net.add("layer", linear<double>({.in = 4, .out = 3}));
        arena<double> weights(net.parameters(), 5);
        kfac_config c = exact(0.05);
        c.factor_update_interval = 1;
        c.inverse_update_interval = 4;
        c.inverse_staleness = lag;
        kfac<double> k(weights, c);
        std::vector<std::vector<double>> all;
        for (int step = 0; step < 14; ++step) {
            pass_context p;
            p.curvature = k.begin_step();
            saved_tensors<double> saved;
            net.forward(random_tensor({6, 4}, std::uint32_t(10 + step)), saved, p);
            net.backward(random_tensor({6, 3}, std::uint32_t(40 + step)), saved, p);
            for (double& g : weights.grads().span()) g = 1;
            k.precondition(6, 0);
            all.emplace_back(weights.grads().data(), weights.grads().data() + weights.grads().size());
        }
        return all;
    };
    // Else chosen by measurement for each number of threads, and the helper has one.
    const kernel_tests::forced solver("eigh", "syevd");
    const auto at_once = run(0), late = run(2);
    for (const std::size_t due : {std::size_t{4}, std::size_t{8}}) {
        CHECK(late[due + 1] == late[due]);     // still the old ones
        CHECK(late[due + 2] == at_once[due]);  // those of the averages of step `due`
        CHECK(late[due + 2] != late[due + 1]);
    }
}

TEST_CASE("kfac: on a deep linear network with squared loss the blocks are the generalised Gauss-Newton's", "[kfac]") {
    // y = W2 W1 x, loss ½‖y − t‖²: with targets drawn from N(y, 1), E[g gᵀ] = J Jᵀ of what follows the layer, exactly.
    // Here the expectation over draws is taken in closed form: one row of gradients for each output, √N apart.
    const index_t n = 4, in = 3, middle = 2, out = 2;
    sequential<double> net;
    net.add("first", linear<double>({.in = in, .out = middle, .bias = false}));
    net.add("second", linear<double>({.in = middle, .out = out, .bias = false}));
    arena<double> weights(net.parameters(), 5);
    const tensor<double> x = random_tensor({n, in}, 1);
    // Each example is repeated for each output o, with the output gradient e_o: means over the 2N rows, times 2
    // outputs.
    tensor<double> rows({n * out, in}), dy = tensor<double>::zeros({n * out, out});
    for (index_t e = 0; e < n; ++e)
        for (index_t o = 0; o < out; ++o) {
            std::copy_n(x.data() + e * in, in, rows.data() + (e * out + o) * in);
            dy(e * out + o, o) = 1.0 / double(n * out) * std::sqrt(double(out));
        }
    weights.zero_grad();
    kfac<double> k(weights, exact(0.1));
    pass_context p;
    p.curvature = k.begin_step();
    saved_tensors<double> saved;
    net.forward(rows.clone(), saved, p);
    net.backward(dy.clone(), saved, p);
    for (double& g : weights.grads().span()) g = 0;
    parameter<double>&first = *weights.parameters()[0].p, &second = *weights.parameters()[1].p;
    const tensor<double> gradient = random_tensor({middle, in}, 7);
    std::copy_n(gradient.data(), gradient.size(), first.grad.data());
    k.precondition(double(n * out), 0);
    // GGN of the first layer: mean over examples of (x xᵀ) ⊗ (W2ᵀ W2): an exact Kronecker product.
    tensor<double> ggn({6, 6}), rhs({6});
    for (index_t o = 0; o < middle; ++o)
        for (index_t i = 0; i < in; ++i) {
            rhs[o * in + i] = gradient[o * in + i];
            for (index_t o2 = 0; o2 < middle; ++o2)
                for (index_t i2 = 0; i2 < in; ++i2) {
                    double a = 0, g = 0;
                    for (index_t e = 0; e < n; ++e) a += x[e * in + i] * x[e * in + i2] / double(n);
                    for (index_t q = 0; q < out; ++q) g += second.value[q * middle + o] * second.value[q * middle + o2];
                    ggn(o * in + i, o2 * in + i2) = a * g + (o == o2 && i == i2 ? 0.1 : 0);
                }
        }
    const tensor<double> expected = solve(cpu{}, ggn, rhs);
    CHECK(distance({first.grad.data(), first.grad.data() + 6}, {expected.data(), expected.data() + 6}) < 1e-9);
}

TEST_CASE("kfac: what the host does beside products is what plain loops do", "[kfac]") {
    curvature_laws::gathered_rows<cpu, float>();
    curvature_laws::borders<cpu, float>();
    curvature_laws::directions<cpu, float>();
    curvature_laws::directions<cpu, double>();
}

}  // namespace cairn
