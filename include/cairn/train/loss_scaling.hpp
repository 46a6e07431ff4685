#pragma once
// Loss scaling in a training step: the rule (loss_scaler.hpp) and what it does on the device (gradient_scale.hpp).
//   begin_step       the scale of this step
//   of_layers(dy)    the gradient of the loss for layers in T: scaled, where they compute in float16
//   unscale          gradients of weights without the scale; several ranks do that bucket by bucket, before they add up
//   end_step         the scale of the next step; an error where no smaller scale helps

#include <cairn/core/finite.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>
#include <cairn/train/gradient_scale.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/ranks.hpp>

#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

namespace cairn {

/// Of layers in another type than float16: nothing is scaled.
template <Device D, class T>
class loss_scaling {
public:
    loss_scaling(loss_scaler* scaler, arena<float, D>&, ranks<D>*, bool /*stop_at_loss*/) {
        require(!scaler, "trainer: a loss scale is for layers in float16");
    }
    void begin_step(preconditioner<float, D>*) {}
    tensor<T, D> of_layers(tensor<float, D> dy) const { return cast<T>(std::move(dy)); }
    scalar_on<D> unscale() { return 0; }
    void end_step(std::int64_t /*step*/, bool /*skipped*/, double /*loss*/) {}
};

/// See the top of the file.
template <Device D>
class loss_scaling<D, float16> {
public:
    /// `scaler` may be null: a scale of one. Where it is dynamic, the policy of several ranks must be to skip.
    /// `stop_at_loss`: a loss that is not finite is an error, though ranks skip steps whose gradients are not.
    loss_scaling(loss_scaler* scaler, arena<float, D>& weights, ranks<D>* axis, bool stop_at_loss)
        : scaler_(scaler), weights_(weights), axis_(axis), stop_at_loss_(stop_at_loss) {
        if (!scaler_) return;
        scale_.emplace();
        if (axis_)
            axis_->gradients.reducer().before_reduce(
                [divide = scale_->division()](int, std::span<float> gradients) { divide(gradients); });
    }

    void begin_step(preconditioner<float, D>* curvature) {
        if (!scale_ || scale_->now() == scaler_->scale()) return;
        scale_->set(scaler_->scale());
        if (curvature) curvature->gradients_scaled_by(scaler_->scale());
    }

    tensor<float16, D> of_layers(tensor<float, D> dy) const {
        return scale_ ? scale_->template times<float16>(dy) : cast<float16>(std::move(dy));
    }

    /// One rank: gradients without the scale; returns how many are not finite. Of several ranks each bucket is divided
    /// before it is reduced (see the constructor), and agreement.hpp looks.
    scalar_on<D> unscale() {
        if (scale_ && !axis_) return scale_->divide_and_count(weights_.grads());
        return 0;
    }

    /// After step number `step`, of this loss over all ranks. Throws, on all ranks alike, where no smaller scale helps.
    void end_step(std::int64_t step, bool skipped, double loss) {
        if (!scaler_) return;
        if (!skipped) return scaler_->took_step();
        if (axis_ && stop_at_loss_ && !std::isfinite(loss))
            axis_->agree.throw_non_finite(step, "Lower the learning rate, warm up, or clip");
        if (scaler_->skipped_step() || (axis_ && !scaler_->dynamic())) return;  // fixed: skipping is what was asked for
        const std::string advice = scaler_->dynamic()
                                       ? concat("The loss scale is ", scaler_->scale(),
                                                ", the least: lower the learning rate, warm up, clip, or take "
                                                "train.precision = bf16, which has float's range")
                                       : concat("train.loss_scale is ", scaler_->scale(), ": take less, or dynamic");
        if (axis_) axis_->agree.throw_non_finite(step, advice);
        for (const auto& [name, p] : weights_.parameters())
            if (const std::string found = first_non_finite("gradient of " + name, p->grad); !found.empty())
                fail("step ", step, ": ", found, "; nothing was updated. ", advice);
        fail("step ", step, ": a gradient is not finite. ", advice);
    }

private:
    loss_scaler* scaler_;
    arena<float, D>& weights_;
    ranks<D>* axis_;
    bool stop_at_loss_;
    std::optional<gradient_scale<D>> scale_;  // where there is a scaler
};

}  // namespace cairn
