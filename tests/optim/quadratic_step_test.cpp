// The quadratic model against a search, the damping rule against its definition, and whole steps on a loss that is
// quadratic.

#include "catch.hpp"
#include "optim/linear_regression.hpp"

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

TEST_CASE("quadratic model: a step is shortened to what it may promise", "[kfac]") {
    const quadratic_model q{-3, 0.5, 4, 1, 2};
    const auto best = q.minimum();
    const double promised = -q.value(best);
    for (const double most : {0.0, 1e-6, 0.3, 0.999}) {
        const auto s = q.minimum_within(most * promised);
        CHECK(-q.value(s) == Approx(most * promised).epsilon(1e-9));
        CHECK(s.alpha * best.mu == Approx(s.mu * best.alpha).margin(1e-12));  // the same direction
        CHECK(std::abs(s.alpha) <= std::abs(best.alpha));
        CHECK(s.shortened);
    }
    CHECK(q.minimum_within(promised * 1.01).alpha == best.alpha);
    CHECK_FALSE(q.minimum_within(promised * 1.01).shortened);
    CHECK(quadratic_model{}.minimum_within(0).alpha == 0);
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
    linear_regression problem({.in = 6, .out = 3}, 32);
    kfac<float> curvature(problem.weights, {.factor_update_interval = 1, .inverse_update_interval = 1, .kl_clip = 0});
    quadratic_step size(problem.weights, curvature, {.lambda = 1e-6, .every = 0});
    std::int64_t shortened = 0;
    for (int step = 0; step < 4; ++step) {
        const double before = problem.backward(&curvature), expected = problem.take(size, before);
        CHECK(problem.loss() - before == Approx(expected).epsilon(0.02).margin(1e-5));
        shortened += expected <= -0.2499 * before;  // to what a step may promise, a quarter
        CHECK(curvature.guards()[0] == std::pair{std::string("shortened_steps"), shortened});
    }
    CHECK((shortened > 0 && shortened < 4));
    problem.backward(nullptr);  // at the minimum after a few steps: no gradient is left
    CHECK(norm(problem.weights.grads()) < 1e-2);
}

}  // namespace cairn
