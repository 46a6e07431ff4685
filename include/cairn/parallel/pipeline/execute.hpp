#pragma once
// Runs a rank's list of actions (action.hpp) on its stage. Actions run in the order of the list; schedules differ by
// their lists alone.

#include <cairn/parallel/pipeline/action.hpp>
#include <cairn/parallel/pipeline/stage.hpp>

#include <cstddef>
#include <utility>

namespace cairn {

/// What a stage computes its forward from.
template <class T, Device D>
struct stage_input {
    tensor<T, D> x;
    pass_context pass;
};

/// Gradients of all micro-batches of the list are added to those in the stage's arena.
///   batch(m)          → stage_input of micro-batch m
///   objective(m, y)   → the gradient of its loss over the stage's output y
/// Throws on an action of another stage, and on a backward without its forward.
template <Layer L, class Batch, class Objective>
void execute(const action_list& actions, stage<L>& s, Objective&& objective, Batch&& batch) {
    std::size_t last = actions.size();  // the action after which gradients are final
    while (last > 0 && !actions[last - 1].adds_gradients()) --last;

    for (std::size_t i = 0; i < actions.size(); ++i) {
        const action& a = actions[i];
        const int m = a.micro_batch;
        require(a.stage == 0, "action ", a, ": this rank has stage 0 alone");
        switch (a.kind) {
            case action_kind::forward: {
                auto [x, pass] = batch(m);
                auto y = s.forward(m, std::move(x), pass);
                s.set_output_gradient(m, objective(m, std::move(y)));
                break;
            }
            case action_kind::backward:
                s.backward(m, i + 1 == last);
                break;
            case action_kind::backward_input:
                s.backward_input(m);
                break;
            case action_kind::backward_weight:
                s.backward_weight(m, i + 1 == last);
                break;
        }
    }
}

}  // namespace cairn
