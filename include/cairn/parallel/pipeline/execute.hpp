#pragma once
// Runs a rank's list of actions (action.hpp) on its stages. Actions run in the order of the list; schedules differ by
// their lists alone. One rank without a pipeline is a list on one stage: the same text.
//   F    x from the batch or from the stage before → y to the next stage, or to the objective
//   B, I dy from the objective or from the next stage → dx to the stage before
//   W    gradients of parameters; nothing travels
// Tested: the bits of one rank with the same micro-batches, for every schedule (tests/parallel/pipeline).

#include <cairn/comm/self.hpp>
#include <cairn/core/phantom.hpp>
#include <cairn/parallel/pipeline/program.hpp>
#include <cairn/parallel/pipeline/stage.hpp>
#include <cairn/parallel/pipeline/stage_links.hpp>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace cairn {

/// Input of the first stage's forward; other stages take the pass alone.
template <class T, Device D>
struct stage_input {
    tensor<T, D> x;
    pass_context pass;
};

/// Gradients of all micro-batches of the list are added to those in the stages' arenas.
///   samples[m]        samples of micro-batch m, equal on all ranks of the pipeline
///   stages            of this rank, in the order of their numbers
///   links             stage_links, or a stand-in (rehearsal.hpp)
///   batch(m)          → stage_input of micro-batch m
///   objective(m, y)   → the gradient of its loss over the last stage's output y; in lists of forwards alone, nothing
/// Throws, naming rank and action, on an action of a stage of another rank, on a backward without its forward, and if
/// another rank is gone.
template <Layer L, class Links, class Batch, class Objective>
void execute(const pipeline_program& program, std::vector<index_t> samples, std::vector<stage<L>>& stages, Links& links,
             Objective&& objective, Batch&& batch) {
    links.begin(program, std::move(samples));
    const int rank = links.rank(), end = program.stages() - 1;
    const action_list& actions = program.actions[static_cast<std::size_t>(rank)];
    std::vector<std::size_t> place(program.rank_of_stage.size(), stages.size()), last(stages.size());
    for (std::size_t s = 0, here = 0; s < place.size(); ++s)
        if (program.rank_of_stage[s] == rank && here < stages.size()) place[s] = here++;
    const auto is_here = [&](const action& a) {
        return static_cast<std::size_t>(a.stage) < place.size() &&
               place[static_cast<std::size_t>(a.stage)] < stages.size();
    };
    for (std::size_t i = 0; i < actions.size(); ++i)  // after which a stage's gradients are final
        if (actions[i].adds_gradients() && is_here(actions[i]))
            last[place[static_cast<std::size_t>(actions[i].stage)]] = i;

    const auto run = [&](const action& a, std::size_t i) {
        require(is_here(a), "this rank has ", stages.size(), " of ", end + 1, " stages, and not this one");
        stage<L>& s = stages[place[static_cast<std::size_t>(a.stage)]];
        const bool is_last = i == last[place[static_cast<std::size_t>(a.stage)]];
        const int m = a.micro_batch;
        if (a.kind == action_kind::forward) {
            auto [x, pass] = batch(m);
            if (a.stage > 0) {
                x = links.receive(a.stage - 1, false, m);
                pass.input_gradient = true;
            }
            auto y = s.forward(m, std::move(x), pass);
            if (a.stage < end)
                links.send(a.stage, false, m, std::move(y));
            else
                s.set_output_gradient(m, objective(m, std::move(y)));
            return;
        }
        if (a.kind == action_kind::backward_weight) return s.backward_weight(m, is_last);
        if (a.stage < end) s.set_output_gradient(m, links.receive(a.stage, true, m));
        auto dx = a.kind == action_kind::backward ? s.backward(m, is_last) : s.backward_input(m);
        if (a.stage > 0) links.send(a.stage - 1, true, m, std::move(dx));
    };
    // Traced for comparison with the plan (benchmarks/schedule --trace); training alone.
    const bool traced = program.ranks > 1 && std::ranges::any_of(actions, &action::adds_gradients);
    const bool slows = !program.power_states.empty();
    for (std::size_t i = 0; i < actions.size(); ++i) {
        if (slows) phantom_here->set_power_state(program.power_states[static_cast<std::size_t>(rank)][i]);
        links.progress();
        const action& a = actions[i];
        std::optional<trace_scope> scope;
        if (traced) scope.emplace(concat(a), "", "action");
        try {
            run(a, i);
        } catch (error& e) {
            e.add_context(program.ranks > 1 ? concat("pipeline rank ", rank, ", action ", a) : concat("action ", a));
            throw;
        }
    }
    if (slows) phantom_here->set_power_state(0);
    links.finish();
}

/// The same on one rank that has one stage, the whole model.
template <Layer L, class Batch, class Objective>
void execute(const action_list& actions, std::vector<stage<L>>& whole, Objective&& objective, Batch&& batch) {
    stage_links<typename L::value_type, typename L::device, self_communicator> nothing_travels;
    const pipeline_program alone{.name = "one rank", .rank_of_stage = {0}, .actions = {actions}};
    execute(alone, {}, whole, nothing_travels, std::forward<Objective>(objective), std::forward<Batch>(batch));
}

}  // namespace cairn
