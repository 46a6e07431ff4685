#pragma once
// When each action of a program runs, given the times of the stages.
//   start = max(end of the action before it in the list, end of what it needs [+ hop, if another rank did it])
//   makespan bubble    end of the last rank − busy time of the idlest rank: what a step that ends in a barrier sees
//   own-window bubble  max over ranks of (own last end − own first start − busy): the number of the ZB papers

#include <cairn/parallel/pipeline/dependency_order.hpp>
#include <cairn/parallel/pipeline/saved_memory.hpp>

#include <algorithm>
#include <limits>
#include <vector>

namespace cairn {

/// When an action ran.
struct action_time {
    double start = 0, end = 0;
};

/// See the top of the file.
struct pipeline_times {
    std::vector<std::vector<action_time>> actions;  // of each rank, beside the program's lists
    double makespan = 0, makespan_bubble = 0, own_window_bubble = 0;
    std::vector<double> peak;  // micro-batches saved, by rank
};

/// Makespan and bubbles from the times of actions, simulated or measured.
inline pipeline_times summarised(const pipeline_program& program, std::vector<std::vector<action_time>> actions) {
    pipeline_times t{std::move(actions), 0, 0, 0, peak_saved_micro_batches(program)};
    double first = std::numeric_limits<double>::infinity(), last = 0, least_busy = first;
    for (const auto& rank : t.actions) {
        double busy = 0, begin = std::numeric_limits<double>::infinity(), end = 0;
        for (const action_time& a : rank) {
            busy += a.end - a.start;
            begin = std::min(begin, a.start);
            end = std::max(end, a.end);
        }
        if (!rank.empty()) t.own_window_bubble = std::max(t.own_window_bubble, end - begin - busy);
        first = std::min(first, begin);
        last = std::max(last, end);
        least_busy = std::min(least_busy, busy);
    }
    t.makespan = std::max(0.0, last - first);
    t.makespan_bubble = t.makespan - least_busy;
    return t;
}

/// Throws where validate() would for its order. `costs` of each stage; `hop`: time of a transfer between two ranks.
inline pipeline_times simulate(const pipeline_program& program, const std::vector<stage_costs>& costs, double hop = 0) {
    require(costs.size() == static_cast<std::size_t>(program.stages()), "simulation of schedule ", program.name,
            ": costs of ", costs.size(), " stages, it has ", program.stages());
    const action_index index(program);
    std::vector<std::vector<action_time>> times;
    for (const action_list& list : program.actions) times.emplace_back(list.size());
    const auto at = [&](const action_place& p) -> action_time& {
        return times[static_cast<std::size_t>(p.rank)][static_cast<std::size_t>(p.position)];
    };
    for_each_in_dependency_order(program, index, [&](const action_place& here, const action& a) {
        double start = here.position == 0 ? 0 : at({here.rank, here.position - 1}).end;
        index.for_each_need(a, [&](const action_place& need) {
            start = std::max(start, at(need).end + (need.rank == here.rank ? 0 : hop));
        });
        at(here) = {start, start + costs[static_cast<std::size_t>(a.stage)].of(a.kind)};
    });
    return summarised(program, std::move(times));
}

}  // namespace cairn
