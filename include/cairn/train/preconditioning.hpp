#pragma once
// A preconditioner (optim/precondition/preconditioner.hpp) in a training step:
//   begin      layers announce their rows to its listener while forward and backward run
//   decided    gradients ← P⁻¹ gradients, before the optimizer uses them
// Curvature from labels that the model draws (kfac.fisher = mc: the Fisher matrix, where labels of the data give the
// empirical one) takes one more forward and backward of the step's micro-batches, in which layers announce their rows.
// Gradients are made afterwards, from the data's labels, unannounced.
// quadratic_update: K-FAC's step with its own learning rate, momentum and damping, in place of the optimizer's.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/random.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>
#include <cairn/optim/precondition/quadratic_step.hpp>
#include <cairn/train/step_hook.hpp>

#include <concepts>
#include <span>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file.
template <Device D, class T>
class preconditioning : public step_hook<D, T> {
public:
    /// `curvature` outlives this. `mc_label_stride`: labels are drawn for one sample in so many; 0: for none.
    explicit preconditioning(preconditioner<float, D>& curvature, index_t mc_label_stride = 0)
        : curvature_(curvature), mc_label_stride_(mc_label_stride) {}

    void attach(model_stages<D, T>& model, const trainer_config<D>&) override {
        // Of several stages none knows when the sums of all layers are complete: then they leave after backward.
        if (model.stages().size() == 1)
            model.before_last_backward([this] {
                if (observing_) curvature_.last_micro_batch();
            });
    }
    bool changes_gradients() const override { return true; }
    curvature_listener* discover() override { return curvature_.discover(); }

    void begin(training_step<D, T>& now) override {
        if (now.scale && now.scale->now() != scale_) curvature_.gradients_scaled_by(scale_ = now.scale->now());
        now.pass.curvature = curvature_.begin_step();
        observing_ = now.pass.curvature != nullptr;
        if (!observing_ || mc_label_stride_ == 0) return;
        observe_drawn_labels(now);
        now.pass.curvature = nullptr;
        observing_ = false;
    }

    bool decided(const training_step<D, T>& now, const step_result& done) override {
        observing_ = false;
        if (done.taken()) return update(now, done);
        curvature_.skip_step();
        return false;
    }

protected:
    /// Of a step that all ranks take; returns what decided() does.
    virtual bool update(const training_step<D, T>& now, const step_result& done) {
        curvature_.precondition(static_cast<double>(done.samples), now.lr);
        return false;
    }

private:
    void observe_drawn_labels(const training_step<D, T>& now) const {
        const auto chosen = [&](int m) { return first_of(now.batch[m], mc_label_stride_); };
        std::vector<index_t> samples;
        for (int m = 0; m < now.batch.size(); ++m) samples.push_back(chosen(m).host.count);
        const auto input = [&](int m) {
            pass_context p = now.pass_of(now.batch[m]);
            p.repeated = true;
            p.weight_gradient = false;
            return stage_input<T, D>{cast<T>(chosen(m).there.x.share()), p};
        };
        const auto gradient = [&](int m, tensor<T, D> y) {
            const pass_context p = now.pass_of(now.batch[m]);
            const random_stream random = stream_of_path(p.random.seed, p.random.path, "sampled labels", p.random.step);
            tensor<float, D> dy =
                now.loss.goal().sampled_gradient(cast<float>(std::move(y)), random, p.random.first_sample);
            for_each(functors::times<float>{static_cast<float>(now.batch.share(chosen(m).host.count))}, dy);
            return now.for_layers(std::move(dy));
        };
        now.model.observe(samples, gradient, input);
    }

    preconditioner<float, D>& curvature_;
    index_t mc_label_stride_;
    double scale_ = 1;        // of the rows of gradients that layers announce
    bool observing_ = false;  // the forward and backward that run now
};

/// K-FAC's own step (optim/precondition/quadratic_step.hpp): keeps the outputs of forward that its model of the loss
/// begins with, and runs forward again for the rest. A batch is one micro-batch.
template <Device D, class T>
class quadratic_update final : public preconditioning<D, T> {
    using base = preconditioning<D, T>;

public:
    /// `step` outlives this; its model of the loss is made of one sample in `stride`. Others: see preconditioning.
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

private:
    bool update(const training_step<D, T>& now, const step_result& done) override {
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

    quadratic_step<D>& step_;
    index_t stride_;
    tensor<float, D> outputs_;  // of the step at hand
};

}  // namespace cairn
