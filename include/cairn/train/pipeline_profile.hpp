#pragma once
// Where the time of a pipeline's step goes (train --profile):
//   costs      of each stage, while all ranks compute (parallel/pipeline/rehearsal.hpp)
//   simulated  the schedule with these costs, if messages cost nothing (parallel/pipeline/simulate.hpp)
//   measured   the actions of a training step, from the first to the last of all ranks
//   step       all of it: the agreement of the ranks and the update too

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/core/summary.hpp>
#include <cairn/parallel/pipeline/rehearsal.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/train/record.hpp>
#include <cairn/train/run_parts.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <ostream>
#include <span>
#include <vector>

namespace cairn {

/// See the top of the file. Seconds, medians.
struct pipeline_profile {
    pipeline_program program;
    std::vector<stage_costs> costs;
    pipeline_times simulated;
    double measured = 0, step = 0;
    std::vector<double> waited;  // of `measured`, by rank of the pipeline: for messages of others

    /// Share of the simulated speed that was reached.
    double reached() const { return simulated.makespan / measured; }
};

/// Collective. Rehearses, then trains, `rounds` times in turn: both see the same machine.
template <Device D, class T>
pipeline_profile profile_pipeline(run_parts<D, T>& run, int rounds) {
    auto& ranks = run.mesh.grid["pipeline"].host;
    auto& stages = run.update.trainer->stages();
    auto b = run.batches.train->next();
    require(b.has_value(), "profile: no batch");
    pipeline_profile p{.program = stages.program_of(micro_batches<D>(*b, run.task.micro_batches).samples())};
    rehearsal<T, any_communicator, D> alone(ranks, stages.boundaries());
    std::vector<double> measured, step;
    std::vector<std::vector<double>> waited(static_cast<std::size_t>(ranks.size()));
    for (int i = 0; i < rounds; ++i) {
        run.update.trainer->rehearse({*b, run.task.micro_batches}, alone);
        barrier(run.world);
        const stopwatch watch;
        run.update.trainer->step({*b, run.task.micro_batches});
        const double whole = watch.seconds();
        // Of each rank: actions, waiting, step.
        std::vector<double> of_ranks(3 * waited.size());
        const std::array<double, 3> mine{stages.time().all, stages.time().waited, whole};
        std::ranges::copy(mine, of_ranks.begin() + 3 * ranks.rank());
        all_gather(ranks, std::span<double>(of_ranks));
        double slowest = 0, slowest_step = 0;
        for (std::size_t r = 0; r < waited.size(); ++r) {
            slowest = std::max(slowest, of_ranks[3 * r]);
            waited[r].push_back(of_ranks[3 * r + 1]);
            slowest_step = std::max(slowest_step, of_ranks[3 * r + 2]);
        }
        measured.push_back(slowest);
        step.push_back(slowest_step);
    }
    p.costs = alone.costs();
    p.simulated = simulate(p.program, p.costs);
    p.measured = median(measured);
    p.step = median(step);
    for (const auto& of_rank : waited) p.waited.push_back(median(of_rank));
    return p;
}

inline void print_profile(std::ostream& out, const pipeline_profile& p) {
    const auto line = [&](const char* format, auto... values) { out << print(format, values...) << '\n'; };
    line("%-8s %5s %12s %12s %12s   ms a micro-batch, all ranks computing", "stage", "rank", "forward", "input",
         "weight");
    for (std::size_t s = 0; s < p.costs.size(); ++s)
        line("%-8zu %5d %12.3f %12.3f %12.3f", s, p.program.rank_of_stage[s], 1e3 * p.costs[s].forward,
             1e3 * p.costs[s].input, 1e3 * p.costs[s].weight);
    for (std::size_t r = 0; r < p.waited.size(); ++r) {
        double busy = 0;
        for (const action_time& a : p.simulated.actions[r]) busy += a.end - a.start;
        line("rank %zu: %.2f ms of work in %.2f ms simulated; waited %.2f ms", r, 1e3 * busy,
             1e3 * p.simulated.makespan, 1e3 * p.waited[r]);
    }
    line("%s, %d micro-batches: simulated %.2f ms, measured %.2f ms: %.3f of the simulated speed",
         p.program.name.c_str(), p.program.micro_batches, 1e3 * p.simulated.makespan, 1e3 * p.measured, p.reached());
    line("whole step %.2f ms: %.3f of the simulated speed", 1e3 * p.step, p.simulated.makespan / p.step);
}

inline nlohmann::json to_json(const pipeline_profile& p) {
    nlohmann::json costs = nlohmann::json::array();
    for (const stage_costs& c : p.costs)
        costs.push_back({{"forward_s", c.forward}, {"input_s", c.input}, {"weight_s", c.weight}});
    return {{"schedule", p.program.name},
            {"micro_batches", p.program.micro_batches},
            {"costs", costs},
            {"simulated_s", p.simulated.makespan},
            {"measured_s", p.measured},
            {"reached", p.reached()},
            {"step_s", p.step},
            {"waited_s", p.waited}};
}

}  // namespace cairn
