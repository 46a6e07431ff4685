#pragma once
// Loss scaling (Micikevicius et al., ICLR 2018): layers that compute in float16 would round small gradients to zero. So
// the gradient of the loss is multiplied by a scale S, a power of two, before backward, and the gradients of weights,
// which are float, are divided by it before they are used: both exact.
//   dy ← S dy;  backward(dy);  g ← g / S;  every g finite?  yes: the step is taken;  no: S was too large, no step
// The dynamic scale follows the rules of PyTorch's GradScaler, within bounds:
//   a step that is not taken   S ← S / 2
//   2,000 steps in a row       S ← 2 S
// This class is the rule alone; the trainer multiplies, divides and looks. Tested against a plain list of what
// GradScaler's text says.

#include <cairn/core/error.hpp>
#include <cairn/train/settings.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// See the top of the file.
class loss_scaler {
public:
    struct config {
        bool dynamic = true;
        double first = 65536;
        std::int64_t every = 2000;  // steps taken in a row before it doubles
        double least = 0x1p-14;     // a gradient of 1 is then the smallest normal number of float16
        double most = 0x1p24;
    };
    /// What a run goes on with.
    struct state {
        double scale = 0;
        std::int64_t good_steps = 0;  // in a row
    };

    /// Throws on a scale that is no power of two within the bounds.
    explicit loss_scaler(config c) : config_(c), now_{c.first, 0} {
        check(c.first);
        require(c.every >= 1, "loss scale: doubles every ", c.every, " steps; at least 1 is needed");
    }

    double scale() const { return now_.scale; }
    bool dynamic() const { return config_.dynamic; }

    /// A step was taken.
    void took_step() {
        if (!config_.dynamic || ++now_.good_steps < config_.every) return;
        now_.good_steps = 0;
        if (now_.scale < config_.most) now_.scale *= 2;
    }

    /// A step was not taken, for a gradient was not finite. False: the scale stays, it is fixed or the least.
    [[nodiscard]] bool skipped_step() {
        if (!config_.dynamic || now_.scale <= config_.least) return false;
        now_ = {now_.scale / 2, 0};
        return true;
    }

    state saved() const { return now_; }
    /// Goes on as the run that saved s; a fixed scale stays. Throws on a state that none saved.
    void restore(state s) {
        if (!config_.dynamic) return;
        check(s.scale);
        require(s.good_steps >= 0, "loss scale: ", s.good_steps, " steps in a row");
        now_ = s;
    }

private:
    void check(double scale) const {
        int exponent = 0;
        require(std::isfinite(scale) && std::frexp(scale, &exponent) == 0.5 && scale >= config_.least &&
                    scale <= config_.most,
                "loss scale ", scale, ": it must be a power of two, such as 65536, from ", config_.least, " to ",
                config_.most);
    }

    config config_;
    state now_;
};

/// train.loss_scale = "dynamic", or a fixed power of two; train.loss_scale_start and _every of a dynamic one. Throws on
/// other values.
inline loss_scaler::config read_loss_scale(configuration& settings) {
    loss_scaler::config c;
    if (settings.has("train.loss_scale") && !settings.is_text("train.loss_scale")) {
        c.dynamic = false;
        c.first = settings.get("train.loss_scale", c.first, from_to(c.least, c.most));
    } else {
        settings.choice("train.loss_scale", {"dynamic"}, "dynamic");
        c.first = settings.get("train.loss_scale_start", c.first, from_to(c.least, c.most));
        c.every = settings.get<std::int64_t>("train.loss_scale_every", c.every, at_least(1));
    }
    with_context(c.dynamic ? "train.loss_scale_start, _every" : "train.loss_scale", [&] { return loss_scaler(c); });
    return c;
}

/// Without float16 there is nothing to scale: what a run that went on from another precision still has in its settings
/// is let pass.
inline void pass_over_loss_scale(configuration& settings) {
    const bool fixed = settings.has("train.loss_scale") && !settings.is_text("train.loss_scale");
    require(!fixed, "train.loss_scale is for train.precision = fp16; leave it out, or set it to dynamic");
    for (const char* one : {"train.loss_scale", "train.loss_scale_start", "train.loss_scale_every"})
        if (settings.has(one)) return void(read_loss_scale(settings));
}

}  // namespace cairn
