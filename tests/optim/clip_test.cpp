#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lars.hpp>

using namespace cairn;

TEST_CASE("clipping by norm and by value equals the plain loop") {
    const double most = GENERATE(0.01, 10.0, 1e9);
    const auto sgd_reference = [=](bool by_value) {
        return [=](auto& all, auto gradients, double lr, int) {
            by_value ? oracle::clip_value(gradients, most) : oracle::clip_norm(gradients, most);
            for (std::size_t k = 0; k < all.size(); ++k) oracle::sgd(all[k], gradients[k], lr, 0.9, 0.01, false, false);
        };
    };
    const sgd inner{{.weight_decay = 0.01}};
    CHECK(distance_after<double>(clipped{inner, by_norm{most}}, 20, 0.1, sgd_reference(false)) < 1e-12);
    CHECK(distance_after<double>(clipped{inner, by_value{most}}, 20, 0.1, sgd_reference(true)) < 1e-12);

    // Around an optimizer that sees whole parameters.
    const auto lars_reference = [=](auto& all, auto gradients, double lr, int) {
        oracle::clip_norm(gradients, most);
        for (std::size_t k = 0; k < all.size(); ++k)
            oracle::lars(all[k], gradients[k], lr, 0.9, 5e-4, 0.001, 1e-8, false);
    };
    CHECK(distance_after<double>(clipped{lars{}, by_norm{most}}, 20, 0.1, lars_reference) < 1e-12);
}

TEST_CASE("step returns the norm before clipping") {
    parameter<float> p;
    p.shape = {2};
    arena<float> memory(parameter_list<float>{{"p", &p}}, 1);
    bound_optimizer opt(clipped{sgd{{.momentum = 0}}, by_norm{1}}, memory);
    p.grad[0] = 3;
    p.grad[1] = 4;
    CHECK(opt.step(1) == Approx(5));
    CHECK(p.value[0] == Approx(-0.6));
    CHECK(p.value[1] == Approx(-0.8));
}

TEST_CASE("a limit that is not reached changes no bit") {
    small_model<float> a, b;
    bound_optimizer plain(adam{}, *a.memory);
    bound_optimizer limited(clipped{clipped{adam{}, by_norm{1e6}}, by_value{1e6}}, *b.memory);
    for (int t = 0; t < 5; ++t) {
        a.set_gradients(t);
        b.set_gradients(t);
        plain.step(0.01);
        limited.step(0.01);
    }
    CHECK(same_bits(a.memory->values(), b.memory->values()));
}

TEST_CASE("clipping refuses limits that make no sense") {
    using Catch::Matchers::Contains;
    small_model<float> model;
    CHECK_THROWS_WITH(bound_optimizer(clipped{sgd{}, by_norm{0}}, *model.memory), Contains("max_norm 0"));
    CHECK_THROWS_WITH(bound_optimizer(clipped{sgd{}, by_value{-1}}, *model.memory), Contains("limit -1"));
    CHECK_THROWS_WITH(bound_optimizer(clipped{adam{{.eps = -1}}, by_norm{1}}, *model.memory), Contains("eps -1"));
}
