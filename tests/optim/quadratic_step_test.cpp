// The quadratic model against a search, the damping rule against its definition, and whole steps on a loss that is
// quadratic.

#include "catch.hpp"

#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/precondition/quadratic_step.hpp>

namespace cairn {

TEST_CASE("quadratic model: no other step is better", "[kfac]") {
    const quadratic_model q{-3, 0.5, 4, 1, 2};
    const auto best = q.minimum();
    for (double alpha = -2; alpha <= 2; alpha += 0.125)
        for (double mu = -2; mu <= 2; mu += 0.125) CHECK(q.value({alpha, mu}) >= q.value(best) - 1e-12);
    const auto alone = quadratic_model{-3, 0, 4, 0, 0}.minimum();  // the first step has no step before it
    CHECK(alone.alpha == Approx(0.75));
    CHECK(alone.mu == 0);
    const auto parallel = quadratic_model{-3, -6, 4, 8, 16}.minimum();  // the same direction twice
    CHECK(parallel.mu == 0);
    CHECK(quadratic_model{}.minimum().alpha == 0);
}

TEST_CASE("damping rule: by Levenberg and Marquardt", "[kfac]") {
    damping_rule rule{.lambda = 10, .omega = 0.9, .every = 5};
    CHECK(rule.is_due(5));
    CHECK_FALSE(rule.is_due(6));
    rule.observe(-0.9, -1);
    CHECK(rule.lambda == Approx(10 * std::pow(0.9, 5)));
    rule.observe(-0.5, -1);
    CHECK(rule.lambda == Approx(10 * std::pow(0.9, 5)));
    rule.observe(0.2, -1);
    CHECK(rule.lambda == Approx(10));
    rule.observe(NAN, -1);
    CHECK(rule.lambda == Approx(10 * std::pow(0.9, -5)));
}

TEST_CASE("quadratic step: on a quadratic loss the model is the loss", "[kfac]") {
    sequential<float> net;
    net.add("linear", linear<float>({.in = 6, .out = 3}));
    arena<float> weights(net.parameters(), 2);
    const random_stream random{4, 1, 0};
    tensor<float> x({32, 6}), target({32, 3});
    for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    for (index_t i = 0; i < target.size(); ++i)
        target[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(1000 + i)));
    kfac<float> curvature(weights, {.factor_update_interval = 1, .inverse_update_interval = 1, .kl_clip = 0});
    quadratic_step size(weights, curvature, {.lambda = 1e-6, .every = 0});
    const auto loss = [&](tensor<float> y, bool = true) { return mean_squared{}(std::move(y), target); };
    const auto output = [&](bool = true) {
        saved_tensors<float> scratch;
        return net.forward(x.share(), scratch, {.repeated = true});
    };
    double before = 0;
    for (int step = 0; step < 4; ++step) {
        weights.zero_grad();
        pass_context p;
        p.curvature = curvature.begin_step();
        saved_tensors<float> saved;
        auto [value, dy] = loss(net.forward(x.share(), saved, p));
        net.backward(std::move(dy), saved, p);
        before = value;
        const double expected = size.take(32, value, 1.0, output(), output, loss, [](std::span<double>) {});
        CHECK(loss(output()).value - before == Approx(expected).epsilon(0.02).margin(1e-5));
    }
    weights.zero_grad();  // at the minimum after a few steps: no gradient is left
    pass_context p;
    saved_tensors<float> saved;
    auto [value, dy] = loss(net.forward(x.share(), saved, p));
    net.backward(std::move(dy), saved, p);
    CHECK(norm(weights.grads()) < 1e-2);
}

}  // namespace cairn
