#pragma once
// K-FAC's step with its own learning rate, momentum and damping (quadratic_step.hpp) in place of an optimizer's: keeps
// the outputs of forward that the model of the loss begins with, and runs forward again for the rest.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/train/micro_batches.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/quadratic_step.hpp>
#include <cairn/train/trainer_config.hpp>

#include <concepts>
#include <span>
#include <utility>

namespace cairn {

/// See the top of the file. A batch is one micro-batch.
template <Device D, class T>
class quadratic_update {
public:
    /// `step` may be null: then the optimizer takes the steps. The model of the loss is made of one sample in `stride`.
    /// `recorded`: steps are launched as a whole.
    quadratic_update(quadratic_step<D>* step, index_t stride, bool recorded) : step_(step), stride_(stride) {
        require(!step || !recorded,
                "kfac.step_size = quadratic_model keeps outputs of its forward: train.cuda_graph must be off");
        require(!step || (std::same_as<T, float>),
                "kfac.step_size = quadratic_model takes differences that layers in float alone can show: "
                "train.precision must be float32");
        require(stride >= 1, "trainer: F of one sample in ", stride);
    }
    explicit operator bool() const { return step_ != nullptr; }

    /// The output of forward, before the loss takes it.
    void observe_output(const tensor<float, D>& y) {
        if (step_)
            outputs_ = samples_of(y, {0, (y.extent(0) + stride_ - 1) / stride_}).clone(memory_category::workspace);
    }

    /// The update after gradients and loss of all ranks. `pass`: of the batch's forward; `ranks`: all that take the step,
    /// stages of a pipeline too; null for one rank.
    void take(model_stages<D, T>& model, const any_objective<D>& goal, const micro_batches<D>& batch, pass_context pass,
              const step_result& done, any_communicator* ranks) {
        require(batch.size() <= 1, "kfac.step_size = quadratic_model: one micro-batch a step, here there are ",
                batch.size());
        pass.repeated = true;
        pass.curvature = nullptr;
        const device_batch<D>& all = batch.whole();
        const device_batch<D> few = first_of(all, stride_);
        const auto output = [&](bool entire) {
            return cast<float>(model.output(cast<T>((entire ? all : few).there.x.share()), pass));
        };
        // A rank without samples ran no forward.
        const tensor<float, D> before = batch.count() ? std::move(outputs_) : output(false);
        step_->take(
            static_cast<double>(done.samples), done.loss, batch.share(batch.count()), before, output,
            [&](tensor<float, D> y, bool entire) {
                using result = decltype(goal.loss(std::move(y), all.there));
                return model.has_last() ? goal.loss(std::move(y), (entire ? all : few).there) : result{};
            },
            [&](std::span<double> numbers) {
                if (ranks) all_reduce(*ranks, numbers);
            });
    }

private:
    quadratic_step<D>* step_;
    index_t stride_;
    tensor<float, D> outputs_;  // of the step at hand
};

}  // namespace cairn
