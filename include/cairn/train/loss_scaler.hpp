#pragma once
// Loss scaling (Micikevicius et al., ICLR 2018): layers that compute in float16 would round small gradients to zero. So
// the gradient of the loss is multiplied by a scale S, a power of two, before backward, and the gradients of weights,
// which are float, are divided by it before they are used: both exact.
//   dy ← S dy;  backward(dy);  g ← g / S;  every g finite?  yes: the step is taken;  no: S was too large, no step
// The dynamic scale follows the rules of PyTorch's GradScaler, within bounds:
//   a step that is not taken   S ← S / 2
//   2,000 steps in a row       S ← 2 S
// loss_scaler is the rule alone, tested against a plain list from GradScaler's text. gradient_scale multiplies
// and divides on a device: the gradient of the loss while it is rounded to float16; gradients of weights while those
// that are not finite are counted. The scale is in the device's memory: a recorded step finds today's. Memory traffic:
// dy 4 + 2 bytes an element; gradients 4 + 4. Nothing waits. loss_scaling.hpp does both in a step.

#include <cairn/core/device_scalar.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/train/settings.hpp>

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

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
    /// State for a resumed run.
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

namespace functors {

/// to = *scale · from, rounded.
template <class To>
struct scale_and_round {
    const float* scale;
    CAIRN_HD void operator()(To& to, const float& from) const { to = static_cast<To>(*scale * from); }
};

/// g = g / *scale.
struct unscale {
    const float* scale;
    CAIRN_HD void operator()(float& g) const { g /= *scale; }
};

/// The same, and one more in `broken` where g is not finite.
struct unscale_and_look {
    const float* scale;
    CAIRN_HD void operator()(double& broken, double& /*unused*/, float& g) const {
        g /= *scale;
        broken += g - g == 0 ? 0.0 : 1.0;
    }
};

}  // namespace functors

/// The scale on a device D that is not the host.
template <Device D>
class gradient_scale {
public:
    /// From now on, for what is launched after this.
    void set(double scale) {
        if (scale == set_) return;
        set_ = scale;
        for_each(functors::assign<float>{static_cast<float>(scale)}, here_);
    }
    double now() const { return set_; }

    /// scale · dy, in T.
    template <class T>
    tensor<T, D> times(const tensor<float, D>& dy) const {
        tensor<T, D> scaled(dy.shape());
        for_each(D{}, dy.size(), functors::scale_and_round<T>{here_.data()}, scaled.data(), dy.data());
        return scaled;
    }

    /// g = g / scale, by a function that works as long as this object lives.
    auto division() const {
        return [scale = here_.data()](std::span<float> g) {
            for_each(D{}, static_cast<index_t>(g.size()), functors::unscale{scale}, g.data());
        };
    }

    /// The same of all of g, and how many of it are not finite.
    scalar_on<D> divide_and_count(tensor<float, D>& g) const {
        tensor<double, D> sums({2}, memory_category::workspace);
        sum_each_into(D{}, g.size(), functors::unscale_and_look{here_.data()}, sums.data(), g.data());
        return scalar_on<D>(sums.slice(0, {1}));
    }

private:
    tensor<float, D> here_ = tensor<float, D>({1}, memory_category::workspace);
    double set_ = 0;  // what here_ holds
};

}  // namespace cairn
