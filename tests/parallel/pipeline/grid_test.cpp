// Grids, those on the course's page among them, and schedules measured from a trace.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/parallel/pipeline/grid.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>

#include "schedule/measured.hpp"
#include "schedule/svg.hpp"

#include <fstream>
#include <sstream>
#include <string>

namespace cairn::grid_tests {

using Catch::Matchers::Contains;

std::string grid(const std::string& name, const schedule_shape& shape, const stage_costs& whole = {}, double cap = 0) {
    const pipeline_program program = make_schedule(name, shape, {.max_saved = cap});
    return schedule_grid(program, simulate(program, uniform_costs(program, whole)));
}

TEST_CASE("a schedule as a grid", "[pipeline]") {
    CHECK(grid("1f1b", {2, 2}) ==
          "0  F0 F1 ..... B0--- .. B1---\n"
          "1  .. F0 B0--- F1 B1--- ......\n");
    CHECK(grid("zb_v", {1, 1}) == "0  0F0 1F0 1I0 1W0 0I0 0W0\n");
    CHECK(grid("1f1b", {2, 1}, {2, 0.5, 0.5}) ==
          "0  F0--- ........ B0\n"
          "1  ..... F0--- B0 ...\n");
    const pipeline_program program = make_schedule("1f1b", {2, 2});
    const pipeline_times times = simulate(program, uniform_costs(program, {}));
    CHECK(schedule_grid(program, times, 9).size() <= 2 * (9 + 4));
    const std::string svg = schedule_svg(program, times);
    CHECK_THAT(svg, Contains("<title>1B1, 5 to 7</title>") && Contains("</svg>"));
}

TEST_CASE("the course's page has the grids that the program prints", "[pipeline]") {
    std::ifstream page("course/pipelines.md");
    if (!page) {
        WARN("skipped: not run from the root of the repository");
        return;
    }
    int grids = 0;
    for (std::string line; std::getline(page, line);) {
        if (!line.starts_with("schedule ") || line.find("--stages") == std::string::npos) continue;
        std::istringstream words(line);
        std::string word, name;
        schedule_shape shape;
        double cap = 0;
        words >> word >> name;
        while (words >> word) {
            if (word == "--stages")
                words >> shape.ranks;
            else if (word == "--micro-batches")
                words >> shape.micro_batches;
            else if (word == "--max-saved")
                words >> cap;
            else
                FAIL(word);
        }
        std::string shown;
        for (std::string row; std::getline(page, row) && row != "```";) shown += row + '\n';
        INFO(line);
        CHECK(shown == grid(name, shape, {}, cap));
        ++grids;
    }
    CHECK(grids >= 5);
}

/// The events of `runs` steps of the schedule in trace.json, with processes from `first_rank`.
/// Each action of a stage but the first has waited for 0.1 s before.
std::string events_of(const pipeline_program& program, const pipeline_times& t, int runs, int first_rank) {
    std::string text;
    for (int run = 0; run < runs; ++run)
        for (std::size_t r = 0; r < program.actions.size(); ++r)
            for (std::size_t i = 0; i < program.actions[r].size(); ++i) {
                const double waited = program.actions[r][i].stage > 0 ? 1e5 : 0;
                const double start = 5e8 + 1e8 * run + 1e6 * t.actions[r][i].start - waited;
                const auto add = [&](const char* category, const char* inside, double duration) {
                    text += concat(text.empty() ? "" : ", ", R"({"ph": "X", "tid": 0, "cat": ")", category,
                                   R"(", "pid": )", first_rank + static_cast<int>(r), R"(, "name": "step/)",
                                   program.actions[r][i], inside, R"(", "ts": )", start, R"(, "dur": )", duration, "}");
                };
                add("action", "", 1e6 * (t.actions[r][i].end - t.actions[r][i].start) + waited);
                if (waited > 0) add("communication", "/recv activation", waited);
            }
    return text;
}

TEST_CASE("a schedule is read from a trace", "[pipeline]") {
    const pipeline_program plan = make_schedule("zb_v", {2, 4});
    std::vector<stage_costs> costs;
    for (int s = 0; s < plan.stages(); ++s) costs.push_back({1.0 + s, 2.0 + s, 0.5});
    const pipeline_times times = simulate(plan, costs, 0.25);
    const std::string other =
        R"({"ph": "X", "cat": "phase", "pid": 0, "tid": 0, "name": "forward", "ts": 1, "dur": 1})";
    const auto trace = nlohmann::json::parse(concat(R"({"traceEvents": [)", other, ", ", events_of(plan, times, 3, 0),
                                                    ", ", events_of(plan, times, 3, 2), "]}"));
    const measured_schedule run = parse_measured_schedule(trace, "TRACE");
    CHECK(run.program.actions == plan.actions);
    CHECK(run.program.rank_of_stage == plan.rank_of_stage);
    CHECK(run.times.makespan == Approx(times.makespan));
    CHECK(run.times.makespan_bubble == Approx(times.makespan_bubble));
    for (std::size_t s = 0; s < costs.size(); ++s) {
        CHECK(run.costs[s].forward == Approx(costs[s].forward));
        CHECK(run.costs[s].input == Approx(costs[s].input));
        CHECK(run.costs[s].weight == Approx(costs[s].weight));
    }
    CHECK(simulate(plan, run.costs, 0.25).makespan == Approx(run.times.makespan));
    CHECK_NOTHROW(parse_measured_schedule(trace, "TRACE", 2));
    CHECK_THROWS_WITH(parse_measured_schedule(trace, "TRACE", 3), Contains("has 3 steps"));
    CHECK_THROWS_WITH(parse_measured_schedule(nlohmann::json::parse(R"({"traceEvents": []})"), "TRACE"),
                      Contains("no actions of a pipeline"));
    CHECK_THROWS_WITH(read_measured_schedule("/nowhere"), Contains("cannot be read"));
}

}  // namespace cairn::grid_tests
