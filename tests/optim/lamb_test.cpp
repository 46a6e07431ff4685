#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/lamb.hpp>

using namespace cairn;

// First step: m-hat = g, v-hat = g^2, direction = sign(g) up to eps. theta = (3, 4): norm 5; u = (1, -1) + 0.1 theta =
// (1.3, -0.6).
TEST_CASE("lamb makes a step that was worked out by hand") {
    parameter<double> p;
    p.shape = {2};
    p.decay = GENERATE(true, false);
    arena<double> memory(parameter_list<double>{{"p", &p}}, 1);
    p.value[0] = 3;
    p.value[1] = 4;
    p.grad[0] = 0.5;
    p.grad[1] = -20;
    bound_optimizer opt(lamb{{.eps = 1e-15, .weight_decay = 0.1}}, memory);
    opt.step(0.01);
    const double ratio = 5 / std::sqrt(1.3 * 1.3 + 0.6 * 0.6);
    CHECK(p.value[0] == Approx(p.decay ? 3 - 0.01 * ratio * 1.3 : 3 - 0.01).epsilon(1e-13));
    CHECK(p.value[1] == Approx(p.decay ? 4 + 0.01 * ratio * 0.6 : 4 + 0.01).epsilon(1e-13));
}

TEST_CASE("lamb equals the plain loop in double over 25 steps") {
    const double beta1 = GENERATE(0.0, 0.9), decay = GENERATE(0.0, 0.1), eps = GENERATE(1e-6, 1e-2);
    const auto reference = [=](auto& all, const auto& gradients, double lr, int t) {
        for (std::size_t k = 0; k < all.size(); ++k)
            oracle::lamb(all[k], gradients[k], lr, t, beta1, 0.999, eps, decay);
    };
    const lamb o{{beta1, 0.999, eps, decay}};
    CHECK(distance_after<double>(o, 25, 0.01, reference) < 1e-11);
    CHECK(distance_after<float>(o, 25, 0.01, reference) < 1e-4);
}

TEST_CASE("lamb leaves a parameter at zero without a gradient alone") {
    parameter<float> p;
    p.shape = {5};
    arena<float> memory(parameter_list<float>{{"p", &p}}, 1);
    bound_optimizer opt(lamb{}, memory);
    opt.step(0.1);
    for (float value : p.value.span()) CHECK(value == 0);
}
