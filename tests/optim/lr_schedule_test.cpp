#include "catch.hpp"

#include <cairn/optim/lr_schedule.hpp>

#include <sstream>

using namespace cairn;

namespace {

void require_table(const lr_schedule& s, const std::vector<std::pair<std::int64_t, double>>& table) {
    for (const auto& [step, rate] : table) {
        INFO("step " << step << " of " << s);
        REQUIRE(s(step) == Approx(rate).epsilon(1e-13).margin(1e-15));
    }
}

std::string text(const lr_schedule& s) {
    std::ostringstream out;
    out << s;
    return out.str();
}

}  // namespace

TEST_CASE("schedules match their tables") {
    require_table(constant(0.1), {{0, 0.1}, {1, 0.1}, {1'000'000'000'000, 0.1}});
    require_table(linear_ramp(4, 0, 1), {{0, 0}, {1, 0.25}, {2, 0.5}, {3, 0.75}, {4, 1}, {5, 1}});
    require_table(cosine(4, 1), {{0, 1}, {1, 0.85355339059327378}, {2, 0.5}, {3, 0.14644660940672621}, {4, 0}, {9, 0}});
    require_table(cosine(2, 1, 0.2), {{0, 1}, {1, 0.6}, {2, 0.2}});
    require_table(polynomial(4, 1, 2), {{0, 1}, {1, 0.5625}, {2, 0.25}, {3, 0.0625}, {4, 0}});
    require_table(polynomial(4, 1, 1, 0.5), {{0, 1}, {2, 0.75}, {4, 0.5}});
    require_table(piecewise(0.1, {{3, 0.05}, {5, 0.01}}),
                  {{0, 0.1}, {2, 0.1}, {3, 0.05}, {4, 0.05}, {5, 0.01}, {99, 0.01}});
    require_table(step_decay(0.1, 0.1, {3, 5}), {{0, 0.1}, {2, 0.1}, {3, 0.01}, {4, 0.01}, {5, 0.001}, {99, 0.001}});
    require_table(step_decay(0.1, 0.1, {}), {{0, 0.1}, {99, 0.1}});
}

TEST_CASE("the one-cycle schedule of the CIFAR recipe") {
    require_table(one_cycle(100, 0.4), {{0, 0.02},
                                        {10, 0.21},
                                        {20, 0.4},
                                        {60, 0.2},
                                        {40, 0.4 * 0.5 * (1 + std::cos(std::acos(-1.0) / 4))},
                                        {100, 0},
                                        {101, 0}});
    require_table(one_cycle(10, 1, 0), {{0, 1}, {5, 0.5}, {10, 0}});
    require_table(one_cycle(10, 1, 1, 0), {{0, 0}, {5, 0.5}, {9, 0.9}, {10, 0}});
    require_table(one_cycle(0, 1), {{0, 0}});
    require_table(one_cycle(1, 0.4), {{0, 0.4}, {1, 0}});
}

TEST_CASE("warm-up lies over the first steps and milestones keep their place") {
    require_table(warmup(5, 0, step_decay(1, 0.1, {10, 20})),
                  {{0, 0.2}, {1, 0.4}, {3, 0.8}, {4, 1}, {5, 1}, {9, 1}, {10, 0.1}, {20, 0.01}, {30, 0.01}});
    require_table(warmup(10, 0.1, step_decay(1, 0.1, {10, 20})),
                  {{0, 0.19}, {4, 0.55}, {9, 1}, {10, 0.1}, {19, 0.1}, {20, 0.01}});
    require_table(warmup(15, 0, step_decay(1, 0.1, {10, 20})),
                  {{0, 0.1 / 15}, {2, 0.02}, {13, 0.1 * 14 / 15}, {14, 0.1}, {15, 0.1}, {20, 0.01}});
    require_table(
        warmup(2, 0, cosine(4, 1)),
        {{0, 0.5 * 0.85355339059327378}, {1, 0.85355339059327378}, {2, 0.5}, {3, 0.14644660940672621}, {4, 0}});
    require_table(warmup(9, 0, cosine(4, 1, 0.5)), {{0, 0.5 / 9}, {8, 0.5}, {9, 0.5}, {20, 0.5}});
    require_table(warmup(4, 0, constant(1)), {{0, 0.25}, {1, 0.5}, {3, 1}, {4, 1}, {100, 1}});
    require_table(warmup(1, 0, constant(1)), {{0, 1}, {1, 1}});
    CHECK(warmup(0, 0.5, cosine(4, 1)) == cosine(4, 1));
}

TEST_CASE("one schedule after another") {
    require_table(then(linear_ramp(4, 0, 1), step_decay(1, 0.5, {2, 4})),
                  {{0, 0}, {2, 0.5}, {4, 1}, {5, 1}, {6, 0.5}, {8, 0.25}, {50, 0.25}});
    require_table(then(step_decay(1, 0.5, {2, 4}), cosine(2, 0.1)),
                  {{0, 1}, {2, 0.5}, {3, 0.5}, {4, 0.1}, {5, 0.05}, {6, 0}});
    CHECK(then(linear_ramp(4, 0, 1), cosine(6, 1)).steps() == 10);
    CHECK(then(linear_ramp(20, 0.05 * 0.4, 0.4), cosine(80, 0.4)) == one_cycle(100, 0.4));
}

TEST_CASE("schedules are printed as they are") {
    CHECK(text(constant(0.1)) == "0.. 0.1");
    CHECK(text(one_cycle(100, 0.4)) == "0..20 linear 0.02 -> 0.4, 20..100 cosine 0.4 -> 0");
    CHECK(text(warmup(5, 0, step_decay(1, 0.1, {10, 20}))) == "0..5 linear 0 -> 1, 5..10 1, 10..20 0.1, 20.. 0.01");
    CHECK(text(polynomial(10, 1, 2)) == "0..10 polynomial 1 -> 0 power 2");
}

TEST_CASE("schedules that make no sense are refused") {
    using Catch::Matchers::Contains;
    CHECK_THROWS_WITH(lr_schedule{}(0), Contains("empty"));
    CHECK_THROWS_WITH(cosine(-1, 1), Contains("-1 steps"));
    CHECK_THROWS_WITH(constant(-0.1), Contains("-0.1"));
    CHECK_THROWS_WITH(constant(std::nan("")), Contains("nan"));
    CHECK_THROWS_WITH(polynomial(10, 1, 0), Contains("power 0"));
    CHECK_THROWS_WITH(piecewise(1, {{5, 0.1}, {5, 0.2}}), Contains("step 5"));
    CHECK_THROWS_WITH(one_cycle(10, 1, 1.5), Contains("1.5"));
}
