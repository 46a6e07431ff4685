#pragma once
// Parts of a training step (trainer.hpp) besides forward, backward and the optimizer. Each hook has one duty:
//   activation_packing   audit_activations.hpp    activations are packed between forward and backward
//   stream_reading       streams.hpp              the memory of running texts
//   loss_scaling         loss_scaling.hpp         layers in float16
//   preconditioning      preconditioning.hpp      K-FAC and others change gradients before the optimizer uses them
//   quadratic_update     preconditioning.hpp      K-FAC's own step size in place of the optimizer's
//   weight_averaging     weight_average.hpp       a running mean of the weights
// A trainer calls its hooks in this order, and in decided() the other way round, as calls return.

#include <cairn/comm/any.hpp>
#include <cairn/data/micro_batches.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/parallel/data_axis.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/micro_batch_loss.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/shared_layers.hpp>
#include <cairn/train/training_algorithm.hpp>

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cairn {

/// The ranks that hold the same parameters, of a network on D whose weights are in float.
template <Device D = cpu>
using ranks = data_axis<any_communicator, float, D>;

/// Settings of a trainer besides model, optimizer, objective and hooks.
template <Device D = cpu>
struct trainer_config {
    std::uint64_t seed = 1;
    bool cuda_graph = false;           // steps are captured once and replayed (graph_recorder.hpp)
    bool may_drop_samples = false;     // corrupt samples are left out of batches
    cairn::ranks<D>* ranks = nullptr;  // that take each step together; null: one rank
    shared_layers over = {};           // the ranks that share the model's layers
};

/// The step at hand, as hooks see it.
template <Device D, class T>
struct training_step {
    training_step(model_stages<D, T>& m, const micro_batch_loss<D>& l, const trainer_config<D>& config,
                  micro_batches<D> b, std::int64_t steps_done, double rate)
        : model(m), loss(l), ranks(config.ranks), batch(std::move(b)), number(steps_done), lr(rate) {
        pass.mode = mode::train;
        pass.random = {.seed = config.seed, .step = static_cast<std::uint32_t>(number)};
        pass.input_gradient = false;
        pass.group = ranks && ranks->group ? &*ranks->group : nullptr;
        if (!ranks) {
            batch.place(0, batch.count());
        } else if (config.may_drop_samples) {  // ranks that left corrupt samples out must tell each other
            const auto [before, all] = place_of(ranks->over.host, batch.count());
            batch.place(before, all);
        }
    }

    model_stages<D, T>& model;
    const micro_batch_loss<D>& loss;
    cairn::ranks<D>* const ranks;              // null: one rank
    micro_batches<D> batch;                    // this rank's part
    const std::int64_t number;                 // updates before this one
    const double lr;                           // of its update
    pass_context pass;                         // of forward: preconditioning puts its listener in
    const gradient_scale<D>* scale = nullptr;  // of gradients in the layers, from loss_scaling; null: one

    /// The pass of some of the batch's samples.
    pass_context pass_of(const device_batch<D>& samples) const {
        pass_context p = pass;
        p.random.first_sample = samples.host.first_sample;
        p.random.samples = samples.host.count;
        return p;
    }

    /// The gradient of the loss as the layers take it: in T, times the scale.
    tensor<T, D> for_layers(tensor<float, D> dy) const {
        if constexpr (std::same_as<T, float16>)
            if (scale) return scale->template times<T>(dy);
        return cast<T>(std::move(dy));
    }

    /// All ranks that take the step, of whatever axis; null: this one.
    any_communicator* everyone() const { return ranks ? &ranks->everyone : nullptr; }
};

/// See the top of the file. A hook overrides the moments in which it has something to do.
template <Device D, class T>
class step_hook {
public:
    virtual ~step_hook() = default;

    /// Once, when the trainer is made. The model outlives the hook's calls.
    virtual void attach(model_stages<D, T>& /*model*/, const trainer_config<D>& /*config*/) {}
    /// Whether gradients are others when the optimizer uses them than after backward: then the update is no part of a
    /// recorded step.
    virtual bool changes_gradients() const { return false; }
    /// Listener to the model's layers in a pass before the first step; null: none.
    virtual curvature_listener* discover() { return nullptr; }

    /// A pass of a trial before the first step (model_stages::choose_kernels).
    virtual void trial(pass_context&) {}

    /// Before forward.
    virtual void begin(training_step<D, T>&) {}
    /// The output of a micro-batch, before its loss. Not called while a recorded step is replayed, nor is the next.
    virtual void output(const training_step<D, T>&, const tensor<float, D>& /*y*/) {}
    /// The gradients of all micro-batches are launched; other numbers that the step waits for may join `launched`.
    virtual void after_backward(const training_step<D, T>&, step_scalars<D>& /*launched*/) {}
    /// Ranks have agreed whether they take the step: gradients are those of the whole batch, or it is skipped. Returns
    /// whether the hook has updated the weights in the optimizer's place.
    virtual bool decided(const training_step<D, T>&, const step_result&) { return false; }

    /// The weights have their new values; not called of a step that is not taken.
    virtual void updated(const training_step<D, T>&) {}

    /// A checkpoint was read.
    virtual void state_loaded() {}
};

/// Of a trainer, in the order of the top of the file.
template <Device D, class T>
using step_hooks = std::vector<std::unique_ptr<step_hook<D, T>>>;

template <Device D, class T>
bool change_gradients(const step_hooks<D, T>& hooks) {
    return std::ranges::any_of(hooks, [](const auto& hook) { return hook->changes_gradients(); });
}

}  // namespace cairn
