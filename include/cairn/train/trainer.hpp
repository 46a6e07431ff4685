#pragma once
// One training step:
//   y = forward(x);  {loss, dy} = loss(y, target);  backward(dy);  parameters ← optimizer(gradients, lr(step))
// Each rank does its part of the batch, in micro-batches, and dy is weighted by their share: any number of ranks and of
// micro-batches takes the step of one. trainer::step shows the order of a step's parts; each has one duty, one header:
//   data/micro_batches.hpp           the batch of a rank, cut
//   train/model_stages.hpp           forward and backward of the micro-batches, by lists of actions
//   train/micro_batch_loss.hpp       the loss of each, as its part of the loss of the batch (objectives/objective.hpp)
//   parallel/gradient_sync.hpp       gradients become sums over the ranks, while backward runs
//   parallel/agreement.hpp           whether all ranks take the step
//   optim/any_optimizer.hpp          the update; parallel/sharded.hpp where each rank updates a part
//   train/graph_recorder.hpp         steps of a GPU as CUDA graphs, captured once and replayed
//   train/divergence.hpp   what made a loss infinite
//   train/step_hook.hpp              all else: packed activations, loss scaling, preconditioners

#include <cairn/optim/any_optimizer.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/train/divergence.hpp>
#include <cairn/train/graph_recorder.hpp>
#include <cairn/train/step_hook.hpp>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

namespace cairn {

/// How gradients change the weights.
template <Device D = cpu>
struct update_rule {
    any_optimizer<float, D> optimizer;
    lr_schedule rate;
};

/// A model on device D, whose layers compute in T, with what trains it: weights, losses and updates are in float.
template <Device D = cpu, class T = float>
class trainer final : public training_algorithm<D, T> {
    static_assert(std::same_as<weight_of<T>, float>);

public:
    trainer(model_stages<D, T> model, update_rule<D> update, any_objective<D> goal, step_hooks<D, T> hooks = {},
            trainer_config<D> config = {})
        : config_(std::move(config)),
          update_(std::move(update)),
          loss_(std::move(goal), config_.over),
          hooks_(std::move(hooks)),
          recorder_({.on = config_.cuda_graph, .update_within = !ranks_ && !change_gradients(hooks_)},
                    ranks_ ? &ranks_->gradients.reducer() : nullptr),
          model_(std::move(model)) {
        model_.listen(ranks_ ? ranks_->gradients.listener() : nullptr);
        for (const auto& hook : hooks_) hook->attach(model_, config_);
    }
    trainer(const trainer&) = delete;  // its hooks know its model

    /// One step on this rank's part of a batch. `meanwhile` is called when forward and backward are launched, before
    /// their results are waited for. Throws when the loss or a gradient is not finite, on every rank alike, naming the
    /// step and the first layer whose output is not.
    step_result step(micro_batches<D> batch, step_votes votes = {},
                     const std::function<void()>& meanwhile = {}) override {
        training_step<D, T> now(model_, loss_, config_, std::move(batch), steps(), update_.rate(steps()));
        for (const auto& hook : hooks_) hook->begin(now);

        // Gradients of all micro-batches. Full buckets of them leave for the other ranks while backward goes on.
        if (ranks_) ranks_->gradients.begin(now.number);
        step_scalars<D> numbers =
            recorder_.gradients(now.batch, update_.optimizer, now.lr, now.pass.curvature != nullptr, [&] {
                step_scalars<D> launched;
                const auto gradient = [&](int m, auto y) { return loss_gradient(now, m, std::move(y), launched); };
                model_.weights().zero_grad();
                model_.train(now.batch.samples(), gradient, [&](int m) { return input_of(now, m); });
                for (const auto& hook : hooks_) hook->after_backward(now, launched);
                return launched;
            });
        recorder_.wait(numbers, meanwhile);

        // Ranks add up gradients and losses, and agree whether they take the step.
        const step_result done = synchronise_step(now, numbers, votes);
        bool updated = false;
        for (auto hook = hooks_.rbegin(); hook != hooks_.rend(); ++hook) updated |= (*hook)->decided(now, done);
        if (!done.taken()) return done;

        if (updated) {
            ++update_.optimizer.steps();
        } else {
            recorder_.update(update_.optimizer, now.lr, numbers);
            if (ranks_ && !ranks_->owners.empty()) all_gather_values(ranks_->over, model_.weights(), ranks_->owners);
        }
        for (const auto& hook : hooks_) hook->updated(now);
        return done;
    }

    /// Before the first step: each kernel gets its algorithm for inputs of this shape, and hooks hear of the layers.
    void choose_kernels(const shape& in, mode how) override {
        curvature_listener* listener = nullptr;
        for (const auto& hook : hooks_)
            if (how == mode::train && !listener) listener = hook->discover();
        model_.choose_kernels(listener, in, how, config_.seed, [&](pass_context& p) {
            for (const auto& hook : hooks_) hook->trial(p);
        });
    }

    /// Forward and backward of a step by way of other links, on this rank alone; gradients are zero afterwards.
    template <class Links>
    void rehearse(micro_batches<D> batch, Links& links) {
        const training_step<D, T> now(model_, loss_, config_, std::move(batch), steps(), 0);
        step_scalars<D> losses;
        model_.observe(
            now.batch.samples(), [&](int m, auto y) { return loss_gradient(now, m, std::move(y), losses); },
            [&](int m) { return input_of(now, m); }, links);
        model_.weights().zero_grad();
    }

    /// Updates done so far.
    std::int64_t steps() override { return update_.optimizer.steps(); }
    any_optimizer<float, D>& optimizer() { return update_.optimizer; }
    model_stages<D, T>& stages() override { return model_; }
    const any_objective<D>& goal() const override { return loss_.goal(); }
    const graph_recorder<D>& recorder() const { return recorder_; }

    /// Training samples of this rank classified right, and seen, since the last call.
    std::pair<index_t, index_t> take_training_hits() override { return loss_.take_hits(); }

    /// Of the optimizer; train/run_state.hpp has it in pieces.
    algorithm_state<D> state() override {
        algorithm_state<D> all;
        for (auto& [name, t] : optimizer().tensors()) all.tensors.push_back({"optimizer/" + name, t.share()});
        all.counters.emplace_back("optimizer_steps", &optimizer().steps());
        return all;
    }
    void state_loaded() override {
        for (const auto& hook : hooks_) hook->state_loaded();
    }
    std::vector<std::pair<std::string, double>> figures() override { return {{"lr", update_.rate(steps() - 1)}}; }

    /// Bytes that wait for backward when it begins, the most of all steps since the last call.
    index_t take_saved_after_forward() { return std::exchange(saved_after_forward_, 0); }

private:
    stage_input<T, D> input_of(const training_step<D, T>& now, int m) {
        pass_context pass = now.pass_of(now.batch[m]);
        pass.random.step_at = recorder_.step_at();
        return {cast<T>(now.batch[m].there.x, memory_category::data), pass};
    }

    // Over the output of micro-batch m, for layers in T.
    tensor<T, D> loss_gradient(const training_step<D, T>& now, int m, tensor<T, D> output, step_scalars<D>& numbers) {
        saved_after_forward_ = std::max(saved_after_forward_, D::memory().use_of(memory_category::saved).live);
        tensor<float, D> y = cast<float>(std::move(output));
        for (const auto& hook : hooks_) hook->output(now, y);
        return now.for_layers(loss_.gradient(now.batch, m, std::move(y), numbers));
    }

    // Gradients and totals of all ranks, or an error on all.
    step_result synchronise_step(const training_step<D, T>& now, const step_scalars<D>& numbers, step_votes votes) {
        non_finite_reason reason;
        const auto note = [&](int m, double loss) {
            if (reason.text.empty()) reason = why_not_finite(now, m, loss, config_.over.is_shared());
        };
        step_totals all = model_.has_last() ? loss_.totals(now.batch, numbers, note) : step_totals{};
        all.stop = votes.stop ? 1 : 0;
        all.votes = votes.states;
        if (ranks_) {
            all = synchronise(ranks_->gradients, ranks_->agree, all, now.number + 1, reason.text);
        } else {
            if (!reason.text.empty()) reason.of_samples ? fail(reason.text) : fail_divergence(reason.text);
            all.skip = numbers.broken;
        }
        const double loss = all.samples > 0 ? all.loss / all.samples : 0;
        return {loss, static_cast<index_t>(all.samples), all.skip > 0, all.stop > 0, all.votes};
    }

    const trainer_config<D> config_;
    ranks<D>* const ranks_ = config_.ranks;
    update_rule<D> update_;
    micro_batch_loss<D> loss_;
    step_hooks<D, T> hooks_;
    graph_recorder<D> recorder_;
    model_stages<D, T> model_;  // goes first: it may hold tensors of a step that could not be recorded
    index_t saved_after_forward_ = 0;
};

}  // namespace cairn
