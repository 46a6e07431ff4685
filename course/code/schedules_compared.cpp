// Code of course/lectures/05-pipelines.md: schedules as data, simulated and proved; checks and prints its numbers.

#include <cairn/parallel/pipeline/rendezvous.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <cmath>
#include <cstdio>
#include <string>

using namespace cairn;

void compare() {
    // --8<-- [start:compare]
    for (const char* name : {"gpipe", "1f1b", "interleaved", "zb_h1", "zb_h2", "zb_v"}) {
        const pipeline_program program = make_schedule(name, {.ranks = 4, .micro_batches = 8});
        validate(program);  // complete, and free of deadlock
        const pipeline_times t = simulate(program, uniform_costs(program, {.forward = 1, .input = 1, .weight = 1}));
        std::printf("%-11s  makespan %4.1f, bubble %4.1f, own window %4.1f; saved %g to %g micro-batches\n", name,
                    t.makespan, t.makespan_bubble, t.own_window_bubble, *std::ranges::min_element(t.peak),
                    *std::ranges::max_element(t.peak));
    }
    // --8<-- [end:compare]
    const auto bubble = [](const char* name, const stage_costs& whole, int p, int m) {
        const pipeline_program program = make_schedule(name, {.ranks = p, .micro_batches = m});
        return simulate(program, uniform_costs(program, whole)).makespan_bubble;
    };
    const auto close = [](double x, double y) { return std::abs(x - y) < 1e-9; };
    // The lecture's formulas at times that differ.
    const stage_costs c{1, 1.2, 0.8};
    for (const int p : {2, 4, 8}) {
        const double to_the_end = (p - 1) * (c.forward + c.input + c.weight);
        require(close(bubble("gpipe", c, p, 16), to_the_end) && close(bubble("1f1b", c, p, 16), to_the_end), "1F1B");
        require(close(bubble("interleaved", c, p, 16), to_the_end / 2), "interleaved");
        require(close(bubble("zb_h1", c, p, 16), (p - 1) * (c.forward + c.input - c.weight)), "ZB-H1");
    }
    require(close(bubble("zb_h1", {1, 0.8, 1.2}, 4, 16), 3 * 1.0), "ZB-H1 where W is long");
}

void deadlock() {
    // --8<-- [start:deadlock]
    const pipeline_program mine{.name = "mine",
                                .ranks = 2,
                                .micro_batches = 2,
                                .rank_of_stage = linear_placement(2),
                                .actions = {parse_actions("0F0 0B0 0F1 0B1"), parse_actions("1F0 1F1 1B0 1B1")}};
    try {
        validate(mine);
    } catch (const error& e) {
        std::puts(e.what());
    }

    for (const char* name : {"gpipe", "1f1b"})  // where a send ends only when its receive has begun
        std::printf("%s with blocking sends: %s\n", name,
                    finishes_with(make_schedule(name, {.ranks = 4, .micro_batches = 8}), rendezvous::blocking)
                        ? "ends"
                        : "deadlock");
    // --8<-- [end:deadlock]
    require(finishes_with(make_schedule("gpipe", {.ranks = 4, .micro_batches = 8}), rendezvous::blocking), "GPipe");
    require(!finishes_with(make_schedule("1f1b", {.ranks = 4, .micro_batches = 8}), rendezvous::blocking), "1F1B");
}

// --8<-- [start:step]
/// Time of a step: the whole batch takes `work` on one stage, an action `overhead` more, whatever its size.
double step_time(int ranks, int micro_batches, double work, double overhead) {
    const pipeline_program program = make_schedule("1f1b", {.ranks = ranks, .micro_batches = micro_batches});
    const double third = work / micro_batches / 3 + overhead;
    return simulate(program, uniform_costs(program, {.forward = third, .input = third, .weight = third})).makespan;
}
// --8<-- [end:step]

void how_many() {
    // --8<-- [start:best]
    for (const int m : {4, 8, 16, 32, 64}) std::printf("%2d micro-batches: %.3f s\n", m, step_time(8, m, 1.0, 0.002));
    // --8<-- [end:best]
    const double p = 8, c = 1.0, overhead = 3 * 0.002;
    for (const int m : {4, 8, 16, 32, 64})
        require(std::abs(step_time(8, m, 1.0, 0.002) - (m + p - 1) * (c / m + overhead)) < 1e-9, "the formula");
    const double best = std::sqrt((p - 1) * c / overhead);
    require(std::abs(best - 34.2) < 0.05, "best number of micro-batches ", best);
}

int main() {
    compare();
    deadlock();
    how_many();
}
