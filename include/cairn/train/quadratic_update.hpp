#pragma once
// K-FAC's step with its own learning rate, momentum and damping (quadratic_step.hpp) in place of an optimizer's: keeps
// the outputs of forward that the model of the loss begins with, and runs forward again for the rest.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/train/preconditioning.hpp>
#include <cairn/train/quadratic_step.hpp>

#include <concepts>
#include <span>
#include <utility>

namespace cairn {

/// See the top of the file. A batch is one micro-batch.
template <Device D, class T>
class quadratic_update final : public preconditioning<D, T> {
    using base = preconditioning<D, T>;

public:
    /// `step` outlives this, which makes its model of the loss of one sample in `stride`; the others are preconditioning's.
    quadratic_update(quadratic_step<D>& step, index_t stride, preconditioner<float, D>& curvature,
                     index_t mc_label_stride = 0)
        : base(curvature, mc_label_stride), step_(step), stride_(stride) {
        require(stride >= 1, "trainer: F of one sample in ", stride);
        require((std::same_as<T, float>),
                "kfac.step_size = quadratic_model takes differences that layers in float alone can show: "
                "train.precision must be float32");
    }

    void attach(model_stages<D, T>& model, const trainer_config<D>& config) override {
        require(!config.cuda_graph,
                "kfac.step_size = quadratic_model keeps outputs of its forward: train.cuda_graph must be off");
        base::attach(model, config);
    }

    void output(const training_step<D, T>&, const tensor<float, D>& y) override {
        outputs_ = samples_of(y, {0, (y.extent(0) + stride_ - 1) / stride_}).clone(memory_category::workspace);
    }

    bool decided(const training_step<D, T>& now, const step_result& done) override {
        if (!done.taken()) return base::decided(now, done);
        require(now.batch.size() <= 1, "kfac.step_size = quadratic_model: one micro-batch a step, here there are ",
                now.batch.size());
        const device_batch<D>& all = now.batch.whole();
        const device_batch<D> few = first_of(all, stride_);
        const any_objective<D>& goal = now.loss.goal();
        pass_context pass = now.pass_of(all);
        pass.repeated = true;
        pass.curvature = nullptr;
        const auto output = [&](bool entire) {
            return cast<float>(now.model.output(cast<T>((entire ? all : few).there.x.share()), pass));
        };
        // A rank without samples ran no forward.
        const tensor<float, D> before = now.batch.count() ? std::move(outputs_) : output(false);
        step_.take(
            static_cast<double>(done.samples), done.loss, now.batch.share(now.batch.count()), before, output,
            [&](tensor<float, D> y, bool entire) {
                using result = decltype(goal.loss(std::move(y), all.there));
                return now.model.has_last() ? goal.loss(std::move(y), (entire ? all : few).there) : result{};
            },
            [&](std::span<double> numbers) {
                if (now.ranks) all_reduce(now.ranks->everyone, numbers);
            });
        return true;
    }

private:
    quadratic_step<D>& step_;
    index_t stride_;
    tensor<float, D> outputs_;  // of the step at hand
};

}  // namespace cairn
