#pragma once
// What a loss scale (loss_scaler.hpp) does on a device: the gradient of the loss is multiplied while it is rounded to
// float16, gradients of weights are divided, and what is not finite is counted in the same pass. The scale is in the
// device's memory: a recorded step finds what it is now. Memory traffic: dy 4 + 2 bytes an element; gradients 4 + 4.
// Nothing here waits.

#include <cairn/core/device_scalar.hpp>
#include <cairn/core/for_each.hpp>

#include <span>

namespace cairn {

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

/// See the top of the file. D is not the host.
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
