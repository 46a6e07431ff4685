// The tests that students have.

#include "training.hpp"

using lab::floats;

TEST_CASE("adam: two steps by hand") {
    // β₁ = β₂ = 0.5, ε = 0, g = 2 and then −1. Step 1: m = 1, v = 2, m̂ = 2, v̂ = 4, θ = 1 − 0.5 · 2/2 = 0.5.
    // Step 2: m = 0, so θ stays.
    const lab::settings s{0.5, 0.5, 0.5, 0};
    const auto step = [&](std::int64_t t, float g, floats theta, floats m, floats v) {
        return lab::call<std::tuple<floats, floats, floats>>("adam", s, t, floats{g}, theta, m, v);
    };
    CHECK(step(1, 2, {1}, {0}, {0}) == std::tuple(floats{0.5f}, floats{1}, floats{2}));
    CHECK(step(2, -1, {0.5f}, {1}, {2}) == std::tuple(floats{0.5f}, floats{0}, floats{1.5f}));
    // Step 2 with g = 2: m = 1.5, v = 3, m̂ = 2, v̂ = 4, θ = 0.5 − 0.5 · 2/2 = 0.
    CHECK(step(2, 2, {0.5f}, {1}, {2}) == std::tuple(floats{0}, floats{1.5f}, floats{3}));
    // ε stands beside the root, not in it: g = 2, ε = 2, θ = 1 − 0.5 · 2/(2 + 2) = 0.75.
    const auto [theta, m, v] = lab::call<std::tuple<floats, floats, floats>>(
        "adam", lab::settings{0.5, 0.5, 0.5, 2}, std::int64_t{1}, floats{2}, floats{1}, floats{0}, floats{0});
    CHECK(theta == floats{0.75f});
}

TEST_CASE("costs: bytes kept and sent of a small example") {
    // 7 + 5 = 12 parameters on 3 ranks: 4 each; by layers 3 + 2, 2 + 2 and 2 + 1.
    const std::vector<std::int64_t> layers{7, 5};
    const auto kept = [&](int stage, int rank) {
        return lab::call<std::tuple<std::int64_t, std::int64_t, std::int64_t>>("kept", stage, layers, 3, rank);
    };
    CHECK(kept(0, 1) == std::tuple(48, 48, 96));
    CHECK(kept(1, 1) == std::tuple(48, 48, 32));
    CHECK(kept(2, 1) == std::tuple(48, 16, 32));
    CHECK(kept(3, 0) == std::tuple(20, 20, 40));
    CHECK(kept(3, 2) == std::tuple(12, 12, 24));
    const auto sent = [&](int stage, int k) { return lab::call<std::int64_t>("sent", stage, layers, 3, k); };
    CHECK(sent(0, 1) == 4 * 2 * 2 * 12);
    CHECK(sent(0, 4) == 4 * 2 * 2 * 12);
    CHECK(sent(1, 4) == 4 * 2 * 2 * 12);
    CHECK(sent(2, 1) == 4 * 2 * 2 * 12);
    CHECK(sent(2, 4) == 4 * 2 * 5 * 12);
    CHECK(sent(3, 1) == 4 * 2 * (36 - 5));
    CHECK(sent(3, 4) == 4 * 2 * 4 * (36 - 5));
}

TEST_CASE("stage 1: training equals Adam on one rank") {
    for (const auto& [p, k] : {std::pair{1, 1}, {2, 1}, {3, 2}})
        REQUIRE(lab::fault_of_training(1, p, {11}, 4, k, 100, false) == "");
}

TEST_CASE("stage 1: what is kept and what is sent") {
    for (const auto& [p, k] : {std::pair{2, 1}, {3, 3}}) REQUIRE(lab::fault_of_training(1, p, {12}, 2, k, 200) == "");
}

TEST_CASE("stage 2: training equals Adam on one rank") {
    for (const auto& [p, k] : {std::pair{1, 1}, {2, 1}, {3, 2}})
        REQUIRE(lab::fault_of_training(2, p, {11}, 4, k, 300, false) == "");
}

TEST_CASE("stage 2: what is kept and what is sent") {
    for (const auto& [p, k] : {std::pair{2, 1}, {3, 3}}) REQUIRE(lab::fault_of_training(2, p, {12}, 2, k, 400) == "");
}

TEST_CASE("stage 3: training equals Adam on one rank") {
    const lab::sizes layers{7, 5};
    using place = std::pair<std::int64_t, std::int64_t>;
    CHECK(lab::call<place>("place_of", layers, std::size_t{0}, 3, 2) == place{0, 2});
    CHECK(lab::call<place>("place_of", layers, std::size_t{1}, 3, 0) == place{3, 2});
    CHECK(lab::call<place>("place_of", layers, std::size_t{1}, 3, 2) == place{2, 1});
    CHECK(lab::call<place>("place_of", layers, std::size_t{2}, 3, 2) == place{3, 0});
    CHECK(lab::fault_of_storage(layers, 3, 490) == "");
    for (const auto& [p, k] : {std::pair{1, 1}, {2, 1}, {3, 2}})
        REQUIRE(lab::fault_of_training(3, p, layers, 4, k, 500) == "");
}

TEST_CASE("stage 3: layers are gathered just in time") {
    for (const int layers : {1, 2, 3, 4}) {
        INFO(layers << " layers");
        CHECK(lab::fault_of_plan(layers) == "");
    }
}
