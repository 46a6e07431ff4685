// Schedules: literal tables, closed forms in their range, and an independent simulation everywhere.

#include "catch.hpp"
#include "messages.hpp"
#include "oracle/pipeline.hpp"
#include "parallel/pipeline/schedule_tables.hpp"

#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <cmath>
#include <set>
#include <string>
#include <vector>

namespace cairn::schedules_tests {

using Catch::Matchers::Contains;

std::vector<std::string> printed(const pipeline_program& program) {
    std::vector<std::string> lists;
    for (const action_list& list : program.actions) lists.push_back(to_string(list));
    return lists;
}

oracle::pipeline_run simulated_plainly(const pipeline_program& program, const std::vector<stage_costs>& costs,
                                       double hop = 0) {
    std::vector<std::array<double, 3>> times;
    for (const stage_costs& c : costs) times.push_back({c.forward, c.input, c.weight});
    return oracle::pipeline(printed(program), program.stages(), program.micro_batches,
                            program.mirrored ? std::vector<int>{} : program.rank_of_stage, times, hop);
}

/// Whether the schedule has this shape; throws only with a message that says what to do.
bool has_shape(const schedule_entry& entry, const schedule_shape& shape) {
    try {
        make_schedule(entry.name, shape);
    } catch (const error& e) {
        CHECK_THAT(e.what(), Contains(concat("schedule ", entry.name, ":")));
        return false;
    }
    return true;
}

const std::vector<stage_costs> time_sets{{1, 1, 1},       {1, 1.2, 0.8},      {1, 0.8, 1.2},   {0.5, 1.5, 1.0},
                                         {1.5, 0.5, 0.9}, {0.67, 0.97, 0.65}, {1.3, 1.3, 0.6}, {0.9, 1.4, 0.5}};

/// Everything that is claimed of one schedule of one shape at these whole-stage times.
void check(const schedule_entry& entry, const schedule_shape& shape, const stage_costs& whole) {
    INFO(entry.name << " p " << shape.ranks << " m " << shape.micro_batches << " v " << shape.virtual_stages
                    << " times " << whole.forward << ' ' << whole.input << ' ' << whole.weight);
    const pipeline_program program = make_schedule(entry.name, shape);
    const auto costs = uniform_costs(program, whole);
    const pipeline_times t = simulate(program, costs);
    const oracle::pipeline_run plain = simulated_plainly(program, costs);
    REQUIRE(plain.complete);
    REQUIRE(plain.finishes);
    CHECK(t.makespan == Approx(plain.makespan).epsilon(1e-12));
    CHECK(t.makespan_bubble == Approx(plain.makespan_bubble).epsilon(1e-12).margin(1e-9));
    CHECK(t.own_window_bubble == Approx(plain.own_window_bubble).epsilon(1e-12).margin(1e-9));
    double worst = 0;
    for (std::size_t r = 0; r < t.peak.size(); ++r) {
        CHECK(t.peak[r] * program.virtual_stages == Approx(plain.peak[r]));
        worst = std::max(worst, t.peak[r]);
    }

    const closed_form form = schedule_closed_form(entry.name, shape, whole);
    if (!std::isnan(form.makespan_bubble)) CHECK(t.makespan_bubble == Approx(form.makespan_bubble).margin(1e-9));
    if (!std::isnan(form.own_window_bubble)) CHECK(t.own_window_bubble == Approx(form.own_window_bubble).margin(1e-9));
    if (form.peak.size() == 1) {
        CHECK(worst == Approx(form.peak[0]));
    } else if (!form.peak.empty()) {
        REQUIRE(form.peak.size() == t.peak.size());
        for (std::size_t r = 0; r < t.peak.size(); ++r) CHECK(t.peak[r] == Approx(form.peak[r]));
    }
    CHECK_NOTHROW(validate(program, {.saved_micro_batches = worst, .serial_order = true}));
    CHECK_THROWS_WITH(validate(program, {.saved_micro_batches = worst - 0.01}), Contains("the bound is"));
}

TEST_CASE("schedules are their literal tables", "[pipeline]") {
    std::set<std::string> seen;
    for (const schedule_table& table : schedule_tables) {
        INFO(table.name);
        const schedule_costs costs{.max_saved = 3};  // of auto alone
        const pipeline_program program = make_schedule(table.name, {table.ranks, table.micro_batches}, costs);
        CHECK(printed(program) == table.lists);
        seen.insert(table.name);
    }
    CHECK(seen.size() == schedule_tables.size());
}

TEST_CASE("closed forms and independent simulation, a sample", "[pipeline]") {
    int checked = 0;
    for (const schedule_entry& entry : schedules())
        for (const auto& [p, m, v] : std::vector<std::array<int, 3>>{{1, 1, 0},
                                                                     {1, 3, 0},
                                                                     {2, 1, 0},
                                                                     {2, 4, 0},
                                                                     {3, 7, 0},
                                                                     {4, 4, 0},
                                                                     {4, 8, 3},
                                                                     {3, 2, 0},
                                                                     {5, 11, 0},
                                                                     {6, 12, 0}}) {
            const schedule_shape shape{p, m, v};
            if (!has_shape(entry, shape)) continue;
            for (std::size_t set = 0; set < 3; ++set) check(entry, shape, time_sets[set]), ++checked;
        }
    CHECK(checked > 100);
}

TEST_CASE("closed forms and independent simulation, all", "[pipeline][.exhaustive]") {
    for (const schedule_entry& entry : schedules())
        for (int p = 1; p <= 8; ++p)
            for (int m = 1; m <= 24; ++m)
                for (int v = 1; v <= 4; ++v) {
                    const schedule_shape shape{p, m, v};
                    if (!has_shape(entry, shape)) continue;
                    for (const stage_costs& times : time_sets) check(entry, shape, times);
                }
}

TEST_CASE("uneven stages and transfers are simulated as by plain loops", "[pipeline]") {
    for (const schedule_entry& entry : schedules()) {
        INFO(entry.name);
        const pipeline_program program = make_schedule(entry.name, {4, 8});
        std::vector<stage_costs> costs;
        for (int s = 0; s < program.stages(); ++s) costs.push_back({1 + 0.1 * s, 1.3 - 0.05 * s, 0.4 + 0.07 * (s % 3)});
        const pipeline_times t = simulate(program, costs, 0.3);
        const oracle::pipeline_run plain = simulated_plainly(program, costs, 0.3);
        CHECK(t.makespan == Approx(plain.makespan).epsilon(1e-12));
        CHECK(t.own_window_bubble == Approx(plain.own_window_bubble).epsilon(1e-12).margin(1e-12));
    }
}

}  // namespace cairn::schedules_tests
