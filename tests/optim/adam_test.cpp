#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/adam.hpp>

using namespace cairn;

// The same numbers as torch::optim::Adam and AdamW of libtorch 1.13 give in double. The first step is lr * sign(g) up
// to eps.
TEST_CASE("adam follows known paths") {
    const auto path = [](auto o) {
        parameter<double> p;
        p.shape = {2};
        arena<double> memory(parameter_list<double>{{"p", &p}}, 1);
        p.value[0] = 1;
        p.value[1] = -2;
        bound_optimizer opt(o, memory);
        std::vector<double> all;
        for (const auto& g : {std::array{0.5, -1.0}, std::array{0.25, 2.0}, std::array{-1.0, 0.125}}) {
            p.grad[0] = g[0];
            p.grad[1] = g[1];
            opt.step(0.1);
            all.insert(all.end(), {p.value[0], p.value[1]});
        }
        return all;
    };
    const auto require_path = [](const std::vector<double>& got, const std::vector<double>& expected) {
        REQUIRE(got.size() == expected.size());
        for (std::size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == Approx(expected[i]).epsilon(1e-13));
    };
    require_path(path(adam{}), {0.90000000199999997, -1.900000001, 0.80678204047746238, -1.9366103534720749,
                                0.82741774288541148, -1.9684337378859402});
    require_path(path(adam{{.weight_decay = 0.01}}), {0.90000000196078433, -1.9000000009803921, 0.80655504104993192,
                                                      -1.9355044186569044, 0.8258477699317025, -1.9659458528598346});
    require_path(path(adamw{{.weight_decay = 0.01}}), {0.89900000199999996, -1.898000001, 0.80488304047546233,
                                                       -1.9327123534710748, 0.82471385984293599, -1.962603025531469});
}

TEST_CASE("adam equals the plain loop in double over 25 steps") {
    const double beta1 = GENERATE(0.0, 0.9);
    const double beta2 = GENERATE(0.95, 0.999);
    const double decay = GENERATE(0.0, 0.1);
    const double eps = GENERATE(1e-8, 1e-2);
    const auto reference = [=](bool decoupled) {
        return [=](auto& all, const auto& gradients, double lr, int t) {
            for (std::size_t k = 0; k < all.size(); ++k)
                oracle::adam(all[k], gradients[k], lr, t, beta1, beta2, eps, decay, decoupled);
        };
    };
    CHECK(distance_after<double>(adam{{beta1, beta2, eps, decay}}, 25, 0.01, reference(false)) < 1e-11);
    CHECK(distance_after<double>(adamw{{beta1, beta2, eps, decay}}, 25, 0.01, reference(true)) < 1e-11);
    CHECK(distance_after<float>(adam{{beta1, beta2, eps, decay}}, 25, 0.01, reference(false)) < 1e-4);
    CHECK(distance_after<float>(adamw{{beta1, beta2, eps, decay}}, 25, 0.01, reference(true)) < 1e-4);
}

TEST_CASE("adam finds the minimum of Rosenbrock's function") {
    parameter<double> p;
    p.shape = {2};
    arena<double> memory(parameter_list<double>{{"p", &p}}, 1);
    p.value[0] = -1.2;
    p.value[1] = 1;
    bound_optimizer opt(adam{}, memory);
    for (int step = 0; step < 20000; ++step) {  // f = (1 - x)^2 + 100 (y - x^2)^2
        const double x = p.value[0], y = p.value[1];
        p.grad[0] = -2 * (1 - x) - 400 * x * (y - x * x);
        p.grad[1] = 200 * (y - x * x);
        opt.step(0.01 * (1 - step / 20000.0));  // at a constant rate Adam circles the minimum
    }
    CHECK(p.value[0] == Approx(1).margin(1e-4));
    CHECK(p.value[1] == Approx(1).margin(2e-4));
}

TEST_CASE("adam survives gradients of zero and of any finite size") {
    parameter<float> p;
    p.shape = {3};
    arena<float> memory(parameter_list<float>{{"p", &p}}, 1);
    bound_optimizer opt(adam{}, memory);
    for (int step = 0; step < 3; ++step) {
        p.grad[0] = 0;
        p.grad[1] = 1e-30f;
        p.grad[2] = 3e38f;
        opt.step(0.1);
        for (float value : p.value.span()) REQUIRE(std::isfinite(value));
    }
    CHECK(p.value[0] == 0);
}

TEST_CASE("adam refuses settings that make no sense") {
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH((adam{{.beta1 = 1}}.check()), Contains("betas 1"));
    CHECK_THROWS_WITH((adam{{.beta2 = 1.5}}.check()), Contains("1.5"));
    CHECK_THROWS_WITH((adam{{.eps = 0}}.check()), Contains("eps 0"));
    CHECK_THROWS_WITH((adamw{{.weight_decay = -1}}.check()), Contains("weight decay -1"));
}
