// Frequency on slack: against brute force on small programs, and what it saves on large ones.

#include "catch.hpp"

#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/train/pipeline_energy.hpp>

#include <algorithm>
#include <cstddef>
#include <random>
#include <vector>

namespace cairn {

namespace {

using states = std::vector<std::size_t>;

/// 250 W, and 450 W more by the frequency cubed.
const host_power cubic{250, 250, {{1, 700}, {0.9, 578.05}, {0.8, 480.4}, {0.7, 404.35}}};

double end_of(const std::vector<timed_action>& actions, const states& s, const host_power& power) {
    const auto ends = earliest_ends(actions, seconds_at(actions, s, power));
    return *std::max_element(ends.begin(), ends.end());
}

/// All plans of `count` actions with so many p-states.
template <class F>
void for_each_plan(std::size_t count, std::size_t choices, F&& f) {
    states plan(count, 0);
    for (;;) {
        f(plan);
        std::size_t i = 0;
        while (i < count && ++plan[i] == choices) plan[i++] = 0;
        if (i == count) return;
    }
}

/// Two to three ranks, each a list; now and then an action needs one of another rank. Whole seconds and half ones.
std::vector<timed_action> random_program(std::uint64_t seed, std::size_t count) {
    std::mt19937_64 random(seed);
    const auto below = [&](std::uint64_t n) { return static_cast<std::size_t>(random() % n); };
    std::vector<timed_action> actions(count);
    std::vector<std::size_t> rank(count), last(3, count);
    const std::size_t ranks = 2 + below(2);
    for (std::size_t i = 0; i < count; ++i) {
        rank[i] = below(ranks);
        actions[i].seconds = 0.5 * static_cast<double>(1 + below(8));
        if (below(4) == 0) actions[i].memory_share = 0.5;
        if (last[rank[i]] < count) actions[i].needs.push_back({last[rank[i]]});
        if (i > 0 && below(2)) actions[i].needs.push_back({below(i), below(2) ? 0.25 : 0});
        last[rank[i]] = i;
    }
    return actions;
}

/// 1F1B, backwards twice as long as forwards, the last stage 15 % heavier.
pipeline_actions heavy_tail(const char* schedule, int stages, int micro_batches, double heavier) {
    const pipeline_program program = make_schedule(schedule, {.ranks = stages, .micro_batches = micro_batches});
    std::vector<stage_costs> costs = uniform_costs(program, {1, 1, 1});
    for (double* part : {&costs.back().forward, &costs.back().input, &costs.back().weight}) *part *= heavier;
    return actions_of(program, costs);
}

struct gain {
    double joules, seconds;  // parts of those at full frequency, saved and added
};
gain gain_of(const std::vector<timed_action>& actions, int ranks) {
    const step_energy full = energy_of(actions, states(actions.size(), 0), cubic, ranks),
                      slow = energy_of(actions, frequencies_on_slack(actions, cubic), cubic, ranks);
    return {1 - slow.joules / full.joules, slow.seconds / full.seconds - 1};
}

}  // namespace

TEST_CASE("slack: how far one action can be put off alone, by trying it", "[perf][energy]") {
    for (std::uint64_t seed = 0; seed < 200; ++seed) {
        std::vector<timed_action> actions = random_program(seed, 9);
        const auto seconds = seconds_at(actions, states(9, 0), cubic);
        const auto ends = earliest_ends(actions, seconds);
        const double deadline = *std::max_element(ends.begin(), ends.end());
        const auto latest = latest_ends(actions, seconds, deadline);
        for (std::size_t i = 0; i < actions.size(); ++i) {
            const double slack = latest[i] - ends[i];
            CHECK(slack >= 0);
            for (const double longer : {slack, slack + 0.25}) {
                auto tried = actions;
                tried[i].seconds += longer, tried[i].memory_share = 0;
                CHECK((end_of(tried, states(9, 0), cubic) <= deadline + 1e-9) == (longer == slack));
            }
        }
    }
}

TEST_CASE("slack: plans end in time, and come near the best of all plans", "[perf][energy]") {
    const host_power three{100, 250, {{1, 700}, {0.8, 480}, {0.6, 347}}};
    double best_saves = 0, ours_saves = 0;
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        const auto actions = random_program(1000 + seed, 7);
        const auto joules = [&](const states& s) { return energy_of(actions, s, three, 3).joules; };
        const states full(7, 0), plan = frequencies_on_slack(actions, three);
        const double deadline = end_of(actions, full, three);
        CHECK(end_of(actions, plan, three) <= deadline + 1e-9);
        double best = joules(full);
        for_each_plan(7, 3, [&](const states& s) {
            if (end_of(actions, s, three) <= deadline + 1e-9) best = std::min(best, joules(s));
        });
        CHECK(joules(plan) >= best - 1e-9);
        best_saves += joules(full) - best;
        ours_saves += joules(full) - joules(plan);
    }
    CHECK(ours_saves >= 0.9 * best_saves);
}

TEST_CASE("slack: a single chain has none, and what memory bounds is not slowed for more joules", "[perf][energy]") {
    std::vector<timed_action> chain(4, {.seconds = 1, .needs = {}});
    for (std::size_t i = 1; i < 4; ++i) chain[i].needs = {{i - 1}};
    CHECK(frequencies_on_slack(chain, cubic) == states(4, 0));
    const host_power flat{0, 0, {{1, 100}, {0.5, 90}}};  // twice as long at nearly the same watts
    std::vector<timed_action> apart{{.seconds = 4, .needs = {}}, {.seconds = 1, .needs = {}}};
    CHECK(frequencies_on_slack(apart, flat) == states{0, 0});
    apart[1].memory_share = 1;
    CHECK(frequencies_on_slack(apart, flat) == states{0, 1});
    CHECK(frequencies_on_slack({}, cubic).empty());
}

TEST_CASE("slack: joules saved on pipelines with a heavy last stage, and beside a straggler", "[perf][energy]") {
    for (const char* schedule : {"1f1b", "zb_h1", "gpipe"}) {
        const gain g = gain_of(heavy_tail(schedule, 8, 32, 1.15).actions, 8);
        INFO(schedule << ": " << g.joules << " less joules, " << g.seconds << " more seconds");
        CHECK(g.joules >= 0.05);
        CHECK(g.seconds <= 1e-9);
    }
    // 64 data-parallel ranks of 4 actions, one rank 15 % slower; then all meet in an all-reduce.
    std::vector<timed_action> ranks;
    timed_action meeting{.seconds = 0.1, .memory_share = 1, .needs = {}};
    for (int r = 0; r < 64; ++r)
        for (int i = 0; i < 4; ++i) {
            ranks.push_back({.seconds = r == 17 ? 1.15 : 1, .needs = {}});
            if (i > 0) ranks.back().needs.push_back({ranks.size() - 2});
            if (i == 3) meeting.needs.push_back({ranks.size() - 1});
        }
    ranks.push_back(meeting);
    const gain g = gain_of(ranks, 64);
    CHECK(g.joules >= 0.05);
    CHECK(g.seconds <= 1e-9);
}

}  // namespace cairn
