#include "catch.hpp"
#include "optim/small_model.hpp"

#include <cairn/optim/sgd.hpp>

using namespace cairn;

namespace {

// theta = (1, -2), three gradients, lr 0.1.
template <class O>
std::vector<std::array<double, 2>> three_steps(O o) {
    parameter<double> p;
    p.shape = {2};
    arena<double> memory(parameter_list<double>{{"p", &p}}, 1);
    p.value[0] = 1;
    p.value[1] = -2;
    bound_optimizer opt(o, memory);
    std::vector<std::array<double, 2>> path;
    for (const auto& g : {std::array{0.5, -1.0}, std::array{0.25, 2.0}, std::array{-1.0, 0.125}}) {
        p.grad[0] = g[0];
        p.grad[1] = g[1];
        opt.step(0.1);
        path.push_back({p.value[0], p.value[1]});
    }
    return path;
}

void require_path(const std::vector<std::array<double, 2>>& path, const std::vector<std::array<double, 2>>& expected) {
    REQUIRE(path.size() == expected.size());
    for (std::size_t i = 0; i < path.size(); ++i)
        for (std::size_t k = 0; k < 2; ++k) REQUIRE(path[i][k] == Approx(expected[i][k]).epsilon(1e-14));
}

}  // namespace

// Worked out by hand, and the same numbers as torch::optim::SGD of libtorch 1.13 gives.
TEST_CASE("sgd follows known paths") {
    require_path(three_steps(sgd{{.momentum = 0}}), {{0.95, -1.9}, {0.925, -2.1}, {1.025, -2.1125}});
    require_path(three_steps(sgd{{.momentum = 0.9}}), {{0.95, -1.9}, {0.88, -2.01}, {0.917, -2.1215}});
    require_path(three_steps(sgd{{.momentum = 0.9, .weight_decay = 0.01}}),
                 {{0.949, -1.898}, {0.877151, -2.004302}, {0.911609749, -2.110469498}});
    require_path(three_steps(sgd{{.momentum = 0.9, .weight_decay = 0.01, .nesterov = true}}),
                 {{0.9031, -1.8062}, {0.81257411, -2.10014822}, {0.942869708191, -2.206086916382}});
    // 1 - 0.05 - 0.001 = 0.949; velocity 0.9 * 0.5 + 0.25 = 0.7; 0.949 * 0.999 - 0.07 = 0.878051; v = -0.37
    require_path(three_steps(sgdw{{.momentum = 0.9, .weight_decay = 0.01}}),
                 {{0.949, -1.898}, {0.878051, -2.006102}, {0.914172949, -2.115595898}});
}

TEST_CASE("sgd equals the plain loop in double over 25 steps") {
    const double momentum = GENERATE(0.0, 0.5, 0.9);
    const double decay = GENERATE(0.0, 0.02);
    const bool nesterov = GENERATE(false, true);
    const auto reference = [=](bool decoupled) {
        return [=](auto& all, const auto& gradients, double lr, int) {
            for (std::size_t k = 0; k < all.size(); ++k)
                oracle::sgd(all[k], gradients[k], lr, momentum, decay, nesterov, decoupled);
        };
    };
    const sgd::config c{momentum, decay, nesterov};
    CHECK(distance_after<double>(sgd{c}, 25, 0.1, reference(false)) < 1e-13);
    CHECK(distance_after<double>(sgdw{c}, 25, 0.1, reference(true)) < 1e-13);
    CHECK(distance_after<float>(sgd{c}, 25, 0.1, reference(false)) < 2e-6);
    CHECK(distance_after<float>(sgdw{c}, 25, 0.1, reference(true)) < 2e-6);
}

TEST_CASE("sgd refuses settings that make no sense") {
    CHECK_THROWS_WITH(sgd{{.momentum = 1}}.check(), Catch::Matchers::Contains("momentum 1"));
    CHECK_THROWS_WITH(sgd{{.momentum = -0.1}}.check(), Catch::Matchers::Contains("momentum"));
    CHECK_THROWS_WITH(sgdw{{.weight_decay = -1}}.check(), Catch::Matchers::Contains("weight decay -1"));
    CHECK_THROWS_WITH(sgd{{.momentum = std::nan("")}}.check(), Catch::Matchers::Contains("momentum"));
}
