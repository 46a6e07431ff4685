// How often versions are taken where state.every = "auto".

#include "catch.hpp"

#include <cairn/train/version_clock.hpp>

#include <cmath>
#include <limits>
#include <optional>

namespace cairn {
namespace {

version_clock clock_by_cost(double mtbf) {
    return {&flush_times::shared, version_interval::parse("state.every", "auto"), mtbf, 0};
}

TEST_CASE("versions by cost: the first comes early, and long before the next failure", "[states]") {
    CHECK(clock_by_cost(std::numeric_limits<double>::infinity()).automatic_interval({}) == 2);
    CHECK(clock_by_cost(86400).automatic_interval({}) == 2);
    CHECK(clock_by_cost(40).automatic_interval({}) == Approx(0.4));
}

TEST_CASE("versions by cost: then at the interval of what they took", "[states]") {
    // The first of 11 touched its room: it stalled for 5 s, each other for 0.5; durable 3 s after its capture began.
    const flush_times t{.shared = {.versions = 11, .durable = 33}, .captured = 11, .stall = 10, .first_stall = 5};
    version_clock clock = clock_by_cost(900);
    CHECK(clock.automatic_interval(t) == Approx(30));  // sqrt(2 * 0.5 * 900)
    // Steps take 1 s, beside a version 1.25 s: a fifth of its speed, 0.5 s of the 2.5 s of a flush.
    for (int i = 0; i < 4; ++i) clock.took_step(1, std::nullopt), clock.took_step(1.25, version_tiers::shared);
    CHECK(clock.automatic_interval(t) == Approx(std::sqrt(2 * (0.5 + 0.2 * 2.5) * 900)));
    // Versions of the other tier say nothing of this one.
    clock.took_step(100, version_tiers::local);
    CHECK(clock.costs(t).slow_down == Approx(0.2));
}

}  // namespace
}  // namespace cairn
