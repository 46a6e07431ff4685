#pragma once
// Loss scaling (loss_scaler.hpp) in a training step:
//   begin             the scale of this step: training_step::for_layers multiplies by it, preconditioning hears of it
//   after_backward    gradients of weights without the scale; of several ranks bucket by bucket, before they are summed
//   decided           the scale of the next step; an error where no smaller scale helps

#include <cairn/core/finite.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/step_hook.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <string>

namespace cairn {

/// See the top of the file.
template <Device D>
class loss_scaling final : public step_hook<D, float16> {
    using step = training_step<D, float16>;

public:
    /// Where the scale is dynamic, the policy of several ranks must be to skip. `stop_at_loss`: a loss that is not
    /// finite is an error, though ranks skip steps whose gradients are not.
    explicit loss_scaling(loss_scaler& scaler, bool stop_at_loss = true)
        : scaler_(scaler), stop_at_loss_(stop_at_loss) {}

    void attach(model_stages<D, float16>&, const trainer_config<D>& config) override {
        if (config.ranks)
            config.ranks->gradients.reducer().before_reduce(
                [divide = scale_.division()](int, std::span<float> gradients) { divide(gradients); });
    }

    void begin(step& now) override {
        scale_.set(scaler_.scale());
        now.scale = &scale_;
    }

    void after_backward(const step& now, step_scalars<D>& launched) override {
        if (!now.ranks) launched.broken = scale_.divide_and_count(now.model.weights().grads());  // else agreement.hpp
    }

    /// Throws, on all ranks alike, where no smaller scale helps.
    bool decided(const step& now, const step_result& done) override {
        if (done.samples > 0 && done.skipped)
            lower(now, done);
        else if (done.samples > 0)
            scaler_.took_step();
        return false;
    }

private:
    void lower(const step& now, const step_result& done) {
        const std::int64_t number = now.number + 1;
        if (now.ranks && stop_at_loss_ && !std::isfinite(done.loss))
            now.ranks->agree.throw_non_finite(number, "Lower the learning rate, warm up, or clip");
        if (scaler_.skipped_step()) return;
        if (now.ranks && !scaler_.dynamic()) return;  // fixed: skipping is what was asked for
        const std::string advice = scaler_.dynamic()
                                       ? concat("The loss scale is ", scaler_.scale(),
                                                ", the least: lower the learning rate, warm up, clip, or take "
                                                "train.precision = bf16, which has float's range")
                                       : concat("train.loss_scale is ", scaler_.scale(), ": take less, or dynamic");
        if (now.ranks) now.ranks->agree.throw_non_finite(number, advice);
        std::string why = "a gradient is not finite. ";
        for (const auto& [name, p] : now.model.weights().parameters())
            if (const std::string found = first_non_finite("gradient of " + name, p->grad); !found.empty()) {
                why = found + "; nothing was updated. ";
                break;
            }
        why = concat("step ", number, ": ", why, advice);
        scaler_.dynamic() ? fail_divergence(why) : fail(why);
    }

    loss_scaler& scaler_;
    bool stop_at_loss_;
    gradient_scale<D> scale_;
};

}  // namespace cairn
