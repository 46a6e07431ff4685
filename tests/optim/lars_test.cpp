#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/lars.hpp>

using namespace cairn;

// theta = (3, 4): norm 5. g = (0.6, 0.8): norm 1. trust 0.02, decay 0.1: r = 0.02 * 5 / (1 + 0.5) = 1/15.
// v = r (g + 0.1 theta) = (0.9, 1.2) / 15 = (0.06, 0.08); theta -= 0.5 v
TEST_CASE("lars makes a step that was worked out by hand") {
    parameter<double> p;
    p.shape = {2};
    p.decay = GENERATE(true, false);
    arena<double> memory(parameter_list<double>{{"p", &p}}, 1);
    p.value[0] = 3;
    p.value[1] = 4;
    p.grad[0] = 0.6;
    p.grad[1] = 0.8;
    bound_optimizer opt(lars{{.weight_decay = 0.1, .trust_coefficient = 0.02, .eps = 0}}, memory);
    opt.step(0.5);
    CHECK(p.value[0] == Approx(p.decay ? 2.97 : 2.7).epsilon(1e-14));
    CHECK(p.value[1] == Approx(p.decay ? 3.96 : 3.6).epsilon(1e-14));
}

TEST_CASE("the trust ratio of lars") {
    const lars plain{{.weight_decay = 0.1, .trust_coefficient = 0.02, .eps = 0}};
    CHECK(plain.ratio(5, 1, 0.5) == Approx(0.02 * 5 / 1.5));
    CHECK(plain.ratio(0, 1, 0.5) == 1);
    CHECK(plain.ratio(5, 0, 0.5) == 1);
    lars clipping = plain;
    clipping.c.clip = true;
    CHECK(clipping.ratio(5, 1, 0.5) == Approx(0.02 * 5 / 1.5 / 0.5));
    CHECK(clipping.ratio(5, 1, 0.01) == 1);  // the layer would move faster than under plain SGD
}

TEST_CASE("lars equals the plain loop in double over 25 steps") {
    const double momentum = GENERATE(0.0, 0.9), decay = GENERATE(0.0, 0.02), trust = GENERATE(0.001, 0.02);
    const bool clip = GENERATE(false, true);
    const auto reference = [=](auto& all, const auto& gradients, double lr, int) {
        for (std::size_t k = 0; k < all.size(); ++k)
            oracle::lars(all[k], gradients[k], lr, momentum, decay, trust, 1e-8, clip);
    };
    const lars o{{momentum, decay, trust, 1e-8, clip}};
    CHECK(distance_after<double>(o, 25, 0.3, reference) < 1e-12);
    CHECK(distance_after<float>(o, 25, 0.3, reference) < 5e-6);
}

TEST_CASE("lars refuses settings that make no sense") {
    CHECK_THROWS_WITH((lars{{.trust_coefficient = 0}}.check()), Catch::Matchers::Contains("trust 0"));
    CHECK_THROWS_WITH((lars{{.momentum = 2}}.check()), Catch::Matchers::Contains("momentum 2"));
}
