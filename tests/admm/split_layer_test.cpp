// Split layers: what they compute is the network, their adjoints are adjoints, their updates are minimisers, and models
// that cannot be split are refused by name.

#include "admm/chains.hpp"
#include "catch.hpp"
#include "messages.hpp"

#include <cairn/admm/block_updates.hpp>

namespace admm_split_tests {

using namespace admm_tests;
using namespace cairn::admm;

std::vector<network> networks() {
    std::vector<network> all;
    all.push_back(small_mlp());
    all.push_back(small_conv());
    all.push_back(pool_before_relu());
    all.push_back(small_graph());
    return all;
}

// ½‖c(a) − z‖² + λ/2 ‖W‖²
double cost(const split_layer<double>& l, const tensor<double>& a, const tensor<double>& z, double lambda) {
    return norm2(residual(l.output(a), z)) / 2 + lambda / 2 * norm2(l.weight);
}

TEST_CASE("admm: a split chain computes what the network does", "[admm]") {
    for (network& n : networks()) {
        const tensor<double> x = normals(n.in.with(0, 5), 1);
        tensor<double> a = x.clone();
        const auto layers = n.layers();
        CHECK(layers.size() == (n.in.rank() == 2 ? 3u : 2u));
        for (const auto& l : layers) {
            CHECK(a.shape() == l.in.with(0, 5));
            a = l.output(a);
            CHECK(a.shape() == l.out.with(0, 5));
            if (l.relu) for_each(functors::at_least_zero<double>{}, a);
        }
        const tensor<double> y = n.output(x);
        for (index_t i = 0; i < y.size(); ++i) CHECK(a[i] == Approx(y[i]).margin(1e-12));
    }
}

TEST_CASE("admm: the maps of a layer are each other's adjoints", "[admm]") {
    for (network& n : networks())
        for (const auto& l : n.layers()) {
            const tensor<double> a = normals(l.in.with(0, 3), 2), r = normals(l.out.with(0, 3), 3),
                                 v = normals(l.weight.shape(), 4);
            CHECK(inner(l.image(a, l.weight), r) == Approx(inner(a, l.to_input(r))).epsilon(1e-11));
            CHECK(inner(l.image(a, v), r) == Approx(inner(v, l.to_weight(a, r))).epsilon(1e-11));
        }
}

TEST_CASE("admm: the gradient over the weights of a graph convolution is that of finite differences", "[admm]") {
    network n = small_graph();
    for (auto& l : n.layers()) {
        const tensor<double> a = normals(l.in.with(0, 2), 2), z = normals(l.out.with(0, 2), 3);
        const tensor<double> g = l.to_weight(a, residual(l.output(a), z)), h = l.to_input(residual(l.output(a), z));
        const auto slope = [&](double& x, const tensor<double>& from) {
            const double was = x, step = 1e-5;
            x = was + step;
            const double up = cost(l, from, z, 0);
            x = was - step;
            const double down = cost(l, from, z, 0);
            x = was;
            return (up - down) / (2 * step);
        };
        for (index_t i = 0; i < g.size(); i += 4) CHECK(slope(l.weight[i], a) == Approx(g[i]).margin(1e-7));
        tensor<double> moved = a.clone();
        for (index_t i = 0; i < h.size(); i += 5) CHECK(slope(moved[i], moved) == Approx(h[i]).margin(1e-7));
    }
}

TEST_CASE("admm: Gram matrices are those of the least-squares problems", "[admm]") {
    for (network& n : networks())
        for (const auto& l : n.layers()) {
            const tensor<double> a = normals(l.in.with(0, 7), 5), v = normals(l.weight.shape(), 6);
            if (l.has_weight_gram())  // ‖A v‖² = Σ over outputs of vᵀ G v
                CHECK(norm2(l.image(a, v)) == Approx(inner(v, l.precondition(v, l.weight_gram(a)))).epsilon(1e-10));
            if (l.has_input_gram())
                CHECK(norm2(l.image(a, l.weight)) ==
                      Approx(inner(a, times_symmetric(a, l.input_gram()))).epsilon(1e-10));
        }
    network conv = small_conv(), pooled = pool_before_relu();
    CHECK(conv.layers()[0].has_weight_gram());
    CHECK_FALSE(pooled.layers()[0].has_weight_gram());
    CHECK_FALSE(conv.layers()[1].has_input_gram());
    CHECK(pooled.layers()[1].has_input_gram());
}

TEST_CASE("admm: b, W and a take exact steps", "[admm]") {
    for (network& n : networks())
        for (auto& l : n.layers())
            for (const auto how : {block_solver::exact, block_solver::gradient}) {
                const double lambda = 0.2, kappa = 0.7;
                tensor<double> a = normals(l.in.with(0, 40), 7);
                const tensor<double> z = normals(l.out.with(0, 40), 8), v = normals(a.shape(), 9);
                tensor<double> r = residual(l.output(a), z);

                // The bias: no shift of one channel is better.
                descend_bias(l, r);
                const double at_bias = cost(l, a, z, lambda);
                CHECK(norm2(residual(r.clone(), residual(l.output(a), z))) < 1e-20);  // r is that of the new bias
                for (const double shift : {-1e-3, 1e-3}) {
                    l.bias[0] += shift;
                    CHECK(cost(l, a, z, lambda) > at_bias);
                    l.bias[0] -= shift;
                }

                // The weights: the step is the best of its direction; exact ones leave no gradient.
                const auto gradient = [&] {
                    tensor<double> g = l.to_weight(a, r);
                    add_times(g, lambda, l.weight);
                    return g;
                };
                const double before = norm2(gradient());
                const tensor<double> was = l.weight.clone();
                const auto inverse = weight_inverse(l, a, lambda, how);
                descend_weight(l, a, r, lambda, pointer_to(inverse));
                CHECK(norm2(residual(r.clone(), residual(l.output(a), z))) < 1e-18);
                const tensor<double> step = residual(l.weight.clone(), was);
                CHECK(std::abs(inner(gradient(), step)) < 1e-9 * std::sqrt(before * norm2(step)));
                if (inverse) CHECK(norm2(gradient()) < 1e-8 * before);
                CHECK(cost(l, a, z, lambda) < at_bias);

                // The input.
                const auto input_gradient = [&] {
                    tensor<double> g = l.to_input(r);
                    for_each([=](double& d, const double& x, const double& y) { d += kappa * (x - y); }, g, a, v);
                    return g;
                };
                const tensor<double> g = input_gradient(), a_before = a.clone();
                const auto of_input = input_inverse(l, kappa, how);
                descend_input(l, a, g, r, kappa, pointer_to(of_input));
                CHECK(norm2(residual(r.clone(), residual(l.output(a), z))) < 1e-18);
                const tensor<double> moved = residual(a.clone(), a_before);
                CHECK(std::abs(inner(input_gradient(), moved)) < 1e-9 * std::sqrt(norm2(g) * norm2(moved)));
                if (of_input) CHECK(norm2(input_gradient()) < 1e-8 * norm2(g));
            }
}

TEST_CASE("admm: a layer that fits already takes no step, and makes no NaN", "[admm]") {
    network n = small_mlp();
    auto layers = n.layers();
    const tensor<double> a = normals({4, 6}, 1);
    tensor<double> r = residual(layers[0].output(a), layers[0].output(a));
    const tensor<double> was = layers[0].weight.clone();
    descend_weight(layers[0], a, r, 0, static_cast<const tensor<double>*>(nullptr));
    CHECK(norm2(residual(was.clone(), layers[0].weight)) == 0);
}

std::string why(sequential<double> net, const shape& in) {
    network n(std::move(net), in);
    return test::message_of([&] { n.layers(); });
}

TEST_CASE("admm: models that cannot be split are refused by the layer's name", "[admm]") {
    sequential<double> pooled;
    pooled.add("conv1", conv<double>({.in = 1, .out = 2, .kernel = 3}));
    pooled.add("pool1", max_pool<double>({.kernel = 2}));
    CHECK(test::contains(why(std::move(pooled), {1, 8, 8, 1}), "layer pool1 (max_pool"));

    sequential<double> smooth;
    smooth.add("fc1", linear<double>({.in = 3, .out = 2}));
    smooth.add("gelu1", gelu<double>());
    smooth.add("fc2", linear<double>({.in = 2, .out = 2}));
    CHECK(test::contains(why(std::move(smooth), {1, 3}), "layer gelu1 (gelu) cannot be split"));

    sequential<double> drops;
    drops.add("dropout1", dropout<double>(0.5));
    drops.add("fc1", linear<double>({.in = 3, .out = 2}));
    CHECK(test::contains(why(std::move(drops), {1, 3}), "leave dropout out (model.dropout = 0)"));

    sequential<double> twice;
    twice.add("fc1", linear<double>({.in = 3, .out = 2}));
    twice.add("fc2", linear<double>({.in = 2, .out = 2}));
    CHECK(test::contains(why(std::move(twice), {1, 3}), "there is no ReLU between it and fc1"));

    sequential<double> end;
    end.add("fc1", linear<double>({.in = 3, .out = 2}));
    end.add("relu1", relu<double>());
    CHECK(test::contains(why(std::move(end), {1, 3}), "ends with a ReLU"));

    sequential<double> padded;
    padded.add("conv1", conv<double>({.in = 1, .out = 2, .kernel = 3, .pad = 1}));
    padded.add("pool1", average_pool<double>({.kernel = 2, .pad = 1}));
    padded.add("relu1", relu<double>());
    padded.add("flatten", flatten<double>());
    padded.add("fc", linear<double>({.in = 50, .out = 2}));
    CHECK(test::contains(why(std::move(padded), {1, 8, 8, 1}), "pool1 averages the zeros of its padding"));
}

}  // namespace admm_split_tests
