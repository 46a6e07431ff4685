#pragma once
// One training step:
//   y = forward(x);  {loss, dy} = loss(y, target);  backward(dy);  parameters ← optimizer(gradients, lr(step))
// Each rank does its part of the batch, in micro-batches, and dy is weighted by their share: any number of ranks and of
// micro-batches takes the step of one. trainer::step shows the order of a step's parts; each has one duty, one header:
//   train/model_stages.hpp           forward and backward of the micro-batches, by lists of actions
//   train/micro_batch_loss.hpp       the loss of each, as its part of the loss of the batch (objectives/objective.hpp)
//   parallel/gradient_sync.hpp       gradients become sums over the ranks, while backward runs
//   parallel/agreement.hpp           whether all ranks take the step
//   train/loss_scaling.hpp           layers in float16
//   train/curvature.hpp              preconditioners of the gradients: K-FAC and others
//   train/any_optimizer.hpp          the update
//   train/monte_carlo_fisher.hpp     K-FAC's statistics from labels that the model draws
//   train/quadratic_update.hpp       K-FAC's own step size in place of the optimizer's
//   train/graph_recorder.hpp         steps of a GPU as CUDA graphs, captured once and replayed
//   train/non_finite_diagnosis.hpp   what made a loss infinite
//   train/audit_activations.hpp      activations packed between forward and backward

#include <cairn/nn/cast.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/lr_schedule.hpp>
#include <cairn/train/any_optimizer.hpp>
#include <cairn/train/audit_activations.hpp>
#include <cairn/train/choose_kernels.hpp>
#include <cairn/train/curvature.hpp>
#include <cairn/train/graph_recorder.hpp>
#include <cairn/train/loss_scaling.hpp>
#include <cairn/train/micro_batch_loss.hpp>
#include <cairn/train/micro_batches.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/monte_carlo_fisher.hpp>
#include <cairn/train/non_finite_diagnosis.hpp>
#include <cairn/train/quadratic_update.hpp>
#include <cairn/train/ranks.hpp>
#include <cairn/train/trainer_config.hpp>
#include <cairn/train/training_algorithm.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

namespace cairn {

/// A model on device D, whose layers compute in T, with what trains it: weights, losses and updates are in float.
template <Device D = cpu, class T = float>
class trainer final : public training_algorithm<D, T> {
    static_assert(std::same_as<weight_of<T>, float>);

public:
    /// `axis` may be null: one rank. `curvature` too: gradients go to the optimizer as they are. And `scaler`, of layers
    /// in float16; where it is dynamic, several ranks must skip. `stages`: of a pipeline, whose first one here is `model`.
    /// `activations`: who packs them; may be null.
    trainer(sequential<T, D>& model, arena<float, D>& weights, any_optimizer<float, D> optimizer, lr_schedule rate,
            any_objective<D> goal, trainer_config config, ranks<D>* axis = nullptr,
            preconditioner<float, D>* curvature = nullptr, quadratic_step<D>* quadratic = nullptr,
            loss_scaler* scaler = nullptr, std::optional<model_stages<D, T>> stages = {},
            compressed_activations<D>* activations = nullptr)
        : model_(model),
          weights_(weights),
          optimizer_(std::move(optimizer)),
          rate_(std::move(rate)),
          loss_(std::move(goal), config.over),
          config_(config),
          axis_(axis),
          curvature_(curvature),
          quadratic_(quadratic, config.quadratic_model_stride, config.cuda_graph),
          scaling_(scaler, weights, axis, config.stop_at_loss),
          recorder_({.on = config.cuda_graph, .update_within = !axis && !curvature},
                    axis ? &axis->gradients.reducer() : nullptr),
          stages_(stages ? std::move(*stages) : model_stages<D, T>(model, weights)),
          activations_(activations) {
        if constexpr (packs_activations<T>)
            if (activations_) stages_.follow(&activations_->packer());
        // Of several stages none knows when the sums of all layers are complete: then they leave after backward.
        stages_.listen(axis_ ? axis_->gradients.listener() : nullptr, [this] {
            if (observer_ && stages_.stages().size() == 1) curvature_->last_micro_batch();
        });
    }
    trainer(const trainer&) = delete;  // its stages call it

    /// One step on this rank's part of a batch. `meanwhile` is called when forward and backward are launched, before
    /// their results are waited for. Throws when the loss or a gradient is not finite, on every rank alike, naming the
    /// step and the first layer whose output is not.
    step_result step(micro_batches<D> batch, bool stop = false, const std::function<void()>& meanwhile = {}) override {
        place_among_ranks(batch);
        const double lr = rate_(steps());
        if constexpr (packs_activations<T>)
            if (activations_) begin_packing(batch);

        // Gradients of all micro-batches. Full buckets of them leave for the other ranks while backward goes on.
        scaling_.begin_step(curvature_);
        observe_curvature(batch);
        if (axis_) axis_->gradients.begin(steps());
        step_scalars<D> numbers = recorder_.gradients(batch, optimizer_, lr, observer_ != nullptr, [&] {
            step_scalars<D> launched;
            const auto gradient = [&](int m, auto y) { return loss_gradient(batch, m, std::move(y), launched); };
            weights_.zero_grad();
            stages_.train(batch.samples(), gradient, [&](int m) { return input_of(batch[m]); });
            launched.broken = scaling_.unscale();
            return launched;
        });
        recorder_.wait(numbers, meanwhile);
        // Ranks add up gradients and losses, and agree whether they take the step.
        const step_result done = synchronise_step(batch, numbers, stop);
        if (curvature_ && !done.taken()) curvature_->skip_step();
        if (done.samples > 0) scaling_.end_step(steps() + 1, done.skipped, done.loss);
        if (!done.taken()) return done;

        // The update.
        if (quadratic_) {
            quadratic_.take(stages_, goal(), batch, pass_of(batch.whole()), done, axis_ ? &axis_->everyone : nullptr);
            ++optimizer_.steps();
            return done;
        }
        if (curvature_) curvature_->precondition(static_cast<double>(done.samples), lr);
        recorder_.update(optimizer_, lr, numbers);
        if (config_.sharded) share_values(axis_->over, weights_, axis_->owners);
        return done;
    }

    /// Before the first step: each kernel gets its algorithm for inputs of this shape.
    void choose_kernels(const shape& in, mode how) override {
        cairn::choose_kernels(stages_, weights_, curvature_, in, how, config_.seed);
    }

    /// Forward and backward of a step by way of other links, on this rank alone: what its actions take. No update; the
    /// gradients are zero afterwards.
    template <class Links>
    void rehearse(const micro_batches<D>& batch, Links& links) {
        observer_ = nullptr;
        step_scalars<D> losses;
        stages_.observe(
            batch.samples(), [&](int m, auto y) { return loss_gradient(batch, m, std::move(y), losses); },
            [&](int m) { return input_of(batch[m]); }, links);
        weights_.zero_grad();
    }

    /// Updates done so far.
    std::int64_t steps() override { return optimizer_.steps(); }
    any_optimizer<float, D>& optimizer() { return optimizer_; }
    model_stages<D, T>& stages() override { return stages_; }
    const any_objective<D>& goal() const override { return loss_.goal(); }
    const graph_recorder<D>& recorder() const { return recorder_; }

    /// Training samples of this rank classified right, and seen, since the last call.
    std::pair<index_t, index_t> take_training_hits() override { return loss_.take_hits(); }

    /// Of the optimizer; train/checkpoint.hpp puts shards together.
    algorithm_state<D> state() override {
        algorithm_state<D> all;
        for (auto& [name, t] : optimizer_.tensors()) all.tensors.push_back({"optimizer/" + name, t.share()});
        all.counters.emplace_back("optimizer_steps", &optimizer_.steps());
        return all;
    }
    void state_loaded() override {
        if constexpr (packs_activations<T>)
            if (activations_ && activations_->plan()) apply(stages_.stages().front().layers(), *activations_->plan());
    }
    std::vector<std::pair<std::string, double>> figures() override { return {{"lr", rate_(steps() - 1)}}; }

    /// Bytes that wait for backward when it begins, the most of all steps since the last call.
    index_t take_saved_after_forward() { return std::exchange(saved_after_forward_, 0); }

private:
    void begin_packing(const micro_batches<D>& batch) {
        // A short last batch may leave a rank without samples: all wait for the next.
        const index_t ranks = axis_ ? axis_->over.host.size() : 1;
        if (activations_->due(steps()) && (steps() == 0 || batch.global_count() >= 2 * ranks))
            audit_activations(*activations_, stages_, weights_, batch, loss_, steps(),
                              axis_ ? &axis_->everyone : nullptr, [this](const auto& b) { return pass_of(b); });
        activations_->packer().begin_step(config_.seed, static_cast<std::uint32_t>(steps()));
    }

    // One rank has the batch; ranks that left corrupt samples out must tell each other.
    void place_among_ranks(micro_batches<D>& batch) {
        if (!axis_) return batch.place(0, batch.count());
        if (!config_.may_drop_samples) return;
        const auto [before, all] = place_of(axis_->over.host, batch.count());
        batch.place(before, all);
    }

    pass_context pass_of(const device_batch<D>& samples) {
        return {.mode = mode::train,
                .random = {.seed = config_.seed,
                           .step = static_cast<std::uint32_t>(steps()),
                           .first_sample = samples.host.first_sample,
                           .samples = samples.host.count},
                .input_gradient = false,
                .curvature = observer_,
                .group = axis_ && axis_->group ? &*axis_->group : nullptr};
    }

    stage_input<T, D> input_of(const device_batch<D>& samples) {
        pass_context p = pass_of(samples);
        p.random.step_at = recorder_.step_at();
        return {cast<T>(samples.there.x, memory_category::data), p};
    }

    // Whether layers announce their rows in this step; from drawn labels they do so here and now.
    void observe_curvature(const micro_batches<D>& batch) {
        observer_ = curvature_ ? curvature_->begin_step() : nullptr;
        if (!observer_ || config_.mc_label_stride == 0) return;
        observe_drawn_labels(stages_, goal(), batch, config_.mc_label_stride, scaling_,
                             [&](int m) { return pass_of(batch[m]); });
        observer_ = nullptr;
    }

    // Over the output of micro-batch m, for layers in T.
    tensor<T, D> loss_gradient(const micro_batches<D>& batch, int m, tensor<T, D> output, step_scalars<D>& numbers) {
        saved_after_forward_ = std::max(saved_after_forward_, D::memory().use_of(memory_category::saved).live);
        tensor<float, D> y = cast<float>(std::move(output));
        quadratic_.observe_output(y);
        return scaling_.of_layers(loss_.gradient(batch, m, std::move(y), numbers));
    }

    // Gradients and totals of all ranks, or an error on all.
    step_result synchronise_step(const micro_batches<D>& batch, const step_scalars<D>& numbers, bool stop) {
        std::string reason;
        const auto note = [&](int m, double loss) {
            if (reason.empty())
                reason = why_not_finite(stages_, weights_, batch[m], pass_of(batch[m]), steps() + 1, loss,
                                        config_.over.is_shared());
        };
        step_totals all = stages_.has_last() ? loss_.totals(batch, numbers, note) : step_totals{};
        all.stop = stop ? 1 : 0;
        if (axis_) {
            all = synchronise(axis_->gradients, axis_->agree, all, steps() + 1, reason);
        } else {
            if (!reason.empty()) fail(reason);
            all.skip = numbers.broken;
        }
        const double loss = all.samples > 0 ? all.loss / all.samples : 0;
        return {loss, static_cast<index_t>(all.samples), all.skip > 0, all.stop > 0};
    }

    sequential<T, D>& model_;
    arena<float, D>& weights_;
    any_optimizer<float, D> optimizer_;
    lr_schedule rate_;
    micro_batch_loss<D> loss_;
    trainer_config config_;
    ranks<D>* axis_;
    preconditioner<float, D>* curvature_;
    quadratic_update<D, T> quadratic_;
    loss_scaling<D, T> scaling_;
    graph_recorder<D> recorder_;
    model_stages<D, T> stages_;               // goes first: it may hold tensors of a step that could not be recorded
    compressed_activations<D>* activations_;  // null where they are kept
    index_t saved_after_forward_ = 0;
    curvature_listener* observer_ = nullptr;  // of the rows of the step at hand
};

}  // namespace cairn
