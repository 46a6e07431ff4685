// The formulas against an independent simulation of failures: a clock, versions in the making, and what a failure takes
// away. 20 settings: stalls from 1e-5 to 1e-2 of the time between failures.

#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/interval.hpp>

#include <array>
#include <limits>
#include <optional>
#include <utility>

namespace cairn {

namespace {

/// Exponentially distributed times with mean `mean`.
class simulated_failures {
public:
    simulated_failures(double mean, std::uint32_t stream) : mean_(mean), numbers_{2026, stream} {}
    double next() { return -mean_ * std::log((numbers_.bits(drawn_++) + 0.5) * 0x1p-32); }

private:
    double mean_;
    random_stream numbers_;
    std::uint64_t drawn_ = 0;
};

/// Training under `failures` failures: the share of time that is not useful work in the end.
double simulated_waste(const std::vector<checkpoint_costs>& tiers, const std::vector<double>& every, int failures) {
    constexpr double never = std::numeric_limits<double>::infinity();
    struct version {
        double work = 0;
        int number = 0;  // how many versions came before
    };
    struct tier {
        simulated_failures source;
        double fails = 0;        // when its next failure comes
        int of = 1;              // every how many versions
        version kept, pending;   // newest durable one; the one that is written
        double durable = never;  // when pending is
    };
    std::vector<tier> all;
    for (std::size_t l = 0; l < tiers.size(); ++l) {
        all.push_back({{tiers[l].mtbf, static_cast<std::uint32_t>(l)}});
        all[l].fails = all[l].source.next();
        all[l].of = static_cast<int>(std::lround(every[l] / every[0]));
    }
    double clock = 0, capture = every[0], stall_ends = 0;
    version now;
    while (failures > 0) {
        double next = capture, speed = clock < stall_ends ? 0 : 1, slow_down = 0;
        if (clock < stall_ends) next = std::min(next, stall_ends);
        for (std::size_t l = 0; l < all.size(); ++l) {
            next = std::min({next, all[l].durable, all[l].fails});
            if (all[l].durable < never) slow_down += tiers[l].slow_down;
        }
        now.work += speed * std::max(0.0, 1 - slow_down) * (next - clock);
        clock = next;
        for (tier& t : all)
            if (clock == t.durable) t.kept = t.pending, t.durable = never;
        if (clock == capture) {
            ++now.number;
            stall_ends = clock;
            for (std::size_t l = 0; l < all.size(); ++l)
                if (now.number % all[l].of == 0) stall_ends += tiers[l].stall;
            for (std::size_t l = 0; l < all.size(); ++l)
                if (now.number % all[l].of == 0) all[l].pending = now, all[l].durable = stall_ends + tiers[l].flush;
            capture = clock + every[0];
        }
        for (std::size_t l = 0; l < all.size(); ++l) {
            if (clock != all[l].fails) continue;
            // Lost: versions in the making, and all of the tiers that do not survive this.
            now = {};
            for (std::size_t above = 0; above < all.size(); ++above) {
                all[above].durable = never;
                if (above < l) all[above].kept = {};
                if (all[above].kept.work > now.work) now = all[above].kept;
            }
            all[l].fails += all[l].source.next();
            stall_ends = clock + tiers[l].restart;
            capture = stall_ends + every[0];
            --failures;
            break;
        }
    }
    return 1 - now.work / clock;
}

/// The same where each interval ends with a check that finds silent errors, then a version that training waits for.
double simulated_verified_waste(const verified_costs& c, double every, int errors) {
    simulated_failures silent(c.silent_mtbf, 8), failing(c.mtbf, 9);
    double clock = 0, kept = 0, corrupts = silent.next(), fails = failing.next();
    while (errors > 0) {
        const double checked = clock + every - c.stall, durable = clock + every;
        const bool corrupt = corrupts < checked;
        const double ends = corrupt ? checked : durable;
        if (fails < ends) {
            clock = fails, fails += failing.next(), --errors;
        } else {
            clock = ends;
            if (corrupt)
                --errors;
            else
                kept += every - c.verification - c.stall;
        }
        while (corrupts < clock) corrupts += silent.next();  // what it had changed is gone
    }
    return 1 - kept / clock;
}

/// Setting `i` of 20: mean time between failures from 100 s to 12 days, the rest in proportion to it.
checkpoint_costs drawn_costs(int i) {
    const random_stream numbers{40, stream_of("intervals")};
    const auto between = [&](int which, double least, double most) {
        const double u = numbers.uniform(static_cast<std::uint64_t>(8 * i + which));
        return std::exp(std::log(least) + u * std::log(most / least));
    };
    checkpoint_costs c;
    c.mtbf = between(0, 1e2, 1e6);
    c.stall = c.mtbf * between(1, 1e-5, 1e-2);
    c.flush = i % 4 == 0 ? 0 : std::min(c.stall * between(2, 0.3, 30), c.mtbf * 0.02);
    c.slow_down = i % 4 == 0 ? 0 : between(3, 0.01, 0.5);
    c.restart = c.mtbf * between(4, 1e-4, 3e-2);
    return c;
}

/// Per cent of time lost at the best interval and at multiples of it, beside what a simulation loses.
void check_against_simulation(int settings, int failures, const std::vector<double>& multiples, double tolerance) {
    for (int i = 0; i < settings; ++i) {
        const checkpoint_costs c = drawn_costs(i);
        const double best = best_interval(c), at_best = simulated_waste({c}, {best}, failures);
        CAPTURE(i, c.stall, c.flush, c.slow_down, c.restart, c.mtbf, best, at_best);
        CHECK(expected_waste(c, best) == Approx(at_best).epsilon(tolerance));
        const double first_order = c.of_version() / best + (best / 2 + c.stall + c.flush + c.restart) / c.mtbf;
        CHECK(expected_waste(c, best) == Approx(first_order).epsilon(0.13));
        for (const double multiple : multiples) {
            const double every = multiple * best, waste = simulated_waste({c}, {every}, failures);
            if (every < c.stall + c.flush) continue;
            CAPTURE(every);
            CHECK(expected_waste(c, every) == Approx(waste).epsilon(tolerance));
            CHECK(at_best <= 1.01 * waste);
        }
    }
}

}  // namespace

TEST_CASE("interval: waste against simulated failures", "[interval]") {
    check_against_simulation(20, 2000, {0.5, 2}, 0.05);
}

TEST_CASE("interval: waste against simulated failures, on a grid", "[.exhaustive][interval]") {
    check_against_simulation(20, 20000, {0.25, 0.5, 0.7, 0.85, 1.2, 1.4, 2, 4}, 0.03);
}

TEST_CASE("interval: the best one is within 5 % of the least waste's", "[interval]") {
    for (int i = 0; i < 20; ++i) {
        const checkpoint_costs c = drawn_costs(i);
        const double best = best_interval(c);
        double least = best;
        for (double every = std::max(c.stall + c.flush, best / 4); every < 4 * best; every *= 1.001)
            if (expected_waste(c, every) < expected_waste(c, least)) least = every;
        CAPTURE(i, best);
        CHECK(least == Approx(best).epsilon(0.05));
    }
}

TEST_CASE("interval: Young's, Daly's, and limits", "[interval]") {
    // A stall of 2 minutes and a failure a day: 1:15:53 between versions, and 1:14:46 of training by Daly's formula.
    CHECK(young_interval(120, 86400) == Approx(4553.68).epsilon(1e-5));
    CHECK(daly_interval(120, 86400) == Approx(4553.68 * (1 + std::sqrt(120 / 172800.) / 3 + 120 / 172800. / 9) - 120));
    CHECK(daly_interval(120, 60) == 60);
    CHECK(best_interval({.stall = 120, .mtbf = 86400}) == young_interval(120, 86400));
    // 0.02 s of stall and a flush of 0.2 s that costs a tenth: as a stall of 0.04 s.
    CHECK(best_interval({.stall = 0.02, .flush = 0.2, .slow_down = 0.1, .mtbf = 40}) ==
          Approx(std::sqrt(2 * 0.04 * 40)));
    CHECK(best_interval({.stall = 0.01, .flush = 9, .mtbf = 40}) == Approx(9.01));  // one flush at a time
    CHECK(best_interval({.flush = 3, .mtbf = 40}) == 3);
    CHECK(std::isinf(best_interval({.stall = 1})));
    CHECK(expected_waste({.stall = 1, .flush = 10, .slow_down = 0.2}, 100) == Approx(0.03));
    CHECK(expected_waste({.stall = 1}, std::numeric_limits<double>::infinity()) == 0);
    CHECK(expected_waste({.stall = 1, .mtbf = 10}, std::numeric_limits<double>::infinity()) == 1);
    CHECK(expected_waste({.stall = 1, .mtbf = 10}, 1e6) == 1);
    CHECK_THROWS_WITH(best_interval({.stall = -1}), Catch::Contains("stall -1 s"));
    CHECK_THROWS_WITH(best_interval({.slow_down = 2}), Catch::Contains("slow-down of 2"));
    CHECK_THROWS_WITH(best_interval({.mtbf = 0}), Catch::Contains("mean time between failures of 0 s"));
    CHECK_THROWS_WITH(expected_waste({.stall = 1}, 0), Catch::Contains("above 0"));
}

TEST_CASE("interval: tiers", "[interval]") {
    // A process dies every 20 minutes, a host every 5 hours, all hosts every 10 days.
    const std::vector<checkpoint_costs> tiers{
        {.stall = 0.5, .restart = 10, .mtbf = 1200},
        {.stall = 0.2, .flush = 20, .slow_down = 0.1, .restart = 30, .mtbf = 18000},
        {.stall = 1, .flush = 300, .slow_down = 0.02, .restart = 60, .mtbf = 864000}};
    const std::vector<double> every = tier_intervals(tiers);
    REQUIRE(every.size() == 3);
    CHECK(every[0] == best_interval(tiers[0]));
    for (std::size_t l = 1; l < 3; ++l) {
        const double multiple = every[l] / every[l - 1];
        CHECK(multiple == Approx(std::round(multiple)));
        CHECK(every[l] >= best_interval(tiers[l]));
        CHECK(every[l] - every[l - 1] < best_interval(tiers[l]));
    }
    const double waste = simulated_waste(tiers, every, 20000);
    CHECK(expected_waste(tiers, every) == Approx(waste).epsilon(0.1));
    for (const double multiple : {0.5, 2.0}) {  // of all three: no better
        std::vector<double> other;
        for (const double e : every) other.push_back(multiple * e);
        CHECK(waste < simulated_waste(tiers, other, 20000));
    }
    // A tier above that would be taken more often than the one below is taken as often; one never needed, never.
    const std::vector<checkpoint_costs> odd{{.stall = 8, .mtbf = 100}, {.stall = 1, .mtbf = 100}, {.stall = 1}};
    CHECK(tier_intervals(odd)[1] == tier_intervals(odd)[0]);
    CHECK(std::isinf(tier_intervals(odd)[2]));
    CHECK(expected_waste(odd, tier_intervals(odd)) ==
          expected_waste(std::span(odd).first(2), std::vector(2, tier_intervals(odd)[0])));
    CHECK_THROWS_WITH(expected_waste(odd, std::vector{1.0}), Catch::Contains("3 tiers and 1 intervals"));
}

TEST_CASE("interval: silent errors that a check finds", "[interval]") {
    for (const double silent : {3e3, 3e4})
        for (const double failing : {2e3, 1e5}) {
            const verified_costs c{.verification = 4, .stall = 3, .silent_mtbf = silent, .mtbf = failing};
            const double best = verified_interval(c), waste = simulated_verified_waste(c, best, 20000);
            CAPTURE(silent, failing, best);
            CHECK(verified_waste(c) == Approx(waste).epsilon(0.1));
            for (const double multiple : {0.7, 1.4})
                CHECK(waste < 1.01 * simulated_verified_waste(c, multiple * best, 20000));
        }
}

}  // namespace cairn
