// The tests that grade beside the public ones.

#include "../tests/training.hpp"

using lab::floats;

TEST_CASE("adam: many steps, any settings") {
    const auto drawn = lab::numbers<double>(4, 1);
    for (const lab::settings s : {lab::settings{}, lab::settings{0.01 * (2 + drawn[0]), 0.8 + 0.1 * drawn[1],
                                                                 0.98 + 0.01 * drawn[2], 1e-3 * (2 + drawn[3])}})
        for (const std::size_t n : {std::size_t{0}, std::size_t{1}, std::size_t{50}}) {
            floats theta = lab::numbers(n, 2), m(n), v(n);
            lab::oracle oracle(s, theta);
            for (std::int64_t t = 1; t <= 20; ++t) {
                const floats g = lab::numbers(n, 2 + static_cast<std::uint32_t>(t));
                std::tie(theta, m, v) = lab::call<std::tuple<floats, floats, floats>>("adam", s, t, g, theta, m, v);
                oracle.step(std::vector<double>(g.begin(), g.end()));
                INFO("step " << t);
                REQUIRE(lab::difference(std::span<const float>(theta), oracle.theta, oracle.bounds()) == "");
                REQUIRE(m.size() == n);
                REQUIRE(v.size() == n);
            }
        }
}

TEST_CASE("costs: any layers, ranks and micro-batches") {
    for (int trial = 0; trial < 6; ++trial) {
        const auto stream = static_cast<std::uint32_t>(10 + 10 * trial);
        const int p = lab::number(1, 9, stream), k = lab::number(1, 5, stream + 1);
        lab::sizes layers;
        for (int l = 0; l < lab::number(1, 5, stream + 2); ++l)
            layers.push_back(static_cast<std::size_t>(lab::number(0, 40, stream + 3 + static_cast<std::uint32_t>(l))));
        const std::vector<std::int64_t> sent(layers.begin(), layers.end());
        const auto all = static_cast<std::int64_t>(lab::total(layers)), last = sent.back();
        for (int stage = 0; stage <= 3; ++stage) {
            INFO("stage " << stage << ", " << lab::text(p, "rank") << ", " << all << " parameters in " << layers.size()
                          << " layers, " << k << " micro-batches");
            for (int r = 0; r < p; ++r) {
                const auto n = lab::numbers_kept(stage, layers, p, r);
                CHECK(lab::call<std::tuple<std::int64_t, std::int64_t, std::int64_t>>("kept", stage, sent, p, r) ==
                      std::tuple(4 * n[0], 4 * n[1], 4 * (n[2] + n[3])));
            }
            const std::int64_t numbers = stage <= 1 ? 2 * all : stage == 2 ? (k + 1) * all : k * (3 * all - last);
            CHECK(lab::call<std::int64_t>("sent", stage, sent, p, k) == 4 * (p - 1) * numbers);
        }
    }
}

TEST_CASE("stage 1: any sizes, ranks and micro-batches") {
    std::uint32_t stream = 10000;
    for (const int p : {1, 2, 4, 5})
        for (const int n : {1, p, lab::number(20, 60, 100)}) {
            const std::string fault =
                lab::fault_of_training(1, p, {static_cast<std::size_t>(n)}, 4, 1 + n % 3, stream += 5000);
            REQUIRE(fault == "");
        }
}

TEST_CASE("stage 2: any sizes, ranks and micro-batches") {
    std::uint32_t stream = 200000;
    for (const int p : {1, 2, 4, 5})
        for (const int n : {1, p, lab::number(20, 60, 101)}) {
            const std::string fault =
                lab::fault_of_training(2, p, {static_cast<std::size_t>(n)}, 4, 1 + n % 3, stream += 5000);
            REQUIRE(fault == "");
        }
}

TEST_CASE("stage 3: any layers, ranks and micro-batches") {
    std::uint32_t stream = 400000;
    for (const int p : {1, 2, 4, 5}) {
        const auto n = static_cast<std::size_t>(lab::number(10, 30, 102));
        for (const lab::sizes& layers : {lab::sizes{1, 1, 1}, {n}, {3, n, 2, n + 1}}) {
            CHECK(lab::fault_of_storage(layers, p, stream) == "");
            const std::string fault = lab::fault_of_training(3, p, layers, 3, p % 2 + 1, stream += 5000);
            REQUIRE(fault == "");
        }
    }
}

TEST_CASE("stage 3: plans of any depth") {
    for (const int layers : {1, 2, 5, lab::number(6, 40, 103)}) {
        INFO(layers << " layers");
        CHECK(lab::fault_of_plan(layers) == "");
    }
}
