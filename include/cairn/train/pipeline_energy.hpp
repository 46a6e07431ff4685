#pragma once
// Frequency on slack (perf/slack.hpp) for a pipeline's schedule.

#include <cairn/parallel/pipeline/dependency_order.hpp>
#include <cairn/perf/slack.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace cairn {

/// The actions of a program in an order in which they can run, and where each is in its lists.
struct pipeline_actions {
    std::vector<timed_action> actions;
    std::vector<action_place> places;

    /// `of_action`, as ranks and positions of the program have it.
    std::vector<std::vector<std::size_t>> by_rank(const pipeline_program& program,
                                                  const std::vector<std::size_t>& of_action) const {
        std::vector<std::vector<std::size_t>> lists;
        for (const action_list& list : program.actions) lists.emplace_back(list.size());
        for (std::size_t i = 0; i < places.size(); ++i)
            lists[static_cast<std::size_t>(places[i].rank)][static_cast<std::size_t>(places[i].position)] =
                of_action[i];
        return lists;
    }
};

/// `costs`: seconds of each stage at the highest frequency; `hop`: of a message between two ranks. Each action needs
/// the one before it in its rank's list, and what simulate() lets it wait for.
inline pipeline_actions actions_of(const pipeline_program& program, const std::vector<stage_costs>& costs,
                                   double hop = 0) {
    const action_index index(program);
    std::vector<std::vector<std::size_t>> number;
    for (const action_list& list : program.actions) number.emplace_back(list.size());
    const auto number_of = [&](const action_place& p) -> std::size_t& {
        return number[static_cast<std::size_t>(p.rank)][static_cast<std::size_t>(p.position)];
    };
    pipeline_actions all;
    for_each_in_dependency_order(program, index, [&](const action_place& here, const action& a) {
        timed_action timed{.seconds = costs[static_cast<std::size_t>(a.stage)].of(a.kind), .needs = {}};
        if (here.position > 0) timed.needs.push_back({number_of({here.rank, here.position - 1})});
        index.for_each_need(a, [&](const action_place& need) {
            timed.needs.push_back({number_of(need), need.rank == here.rank ? 0 : hop});
        });
        number_of(here) = all.actions.size();
        all.actions.push_back(std::move(timed));
        all.places.push_back(here);
    });
    return all;
}

/// Each action of a simulated step gets the lowest frequency that its slack bears; the step ends when it did.
inline void slow_on_slack(pipeline_program& program, const std::vector<stage_costs>& costs, double hop,
                          const host_power& power) {
    const pipeline_actions all = actions_of(program, costs, hop);
    program.power_states = all.by_rank(program, frequencies_on_slack(all.actions, power));
}

}  // namespace cairn
