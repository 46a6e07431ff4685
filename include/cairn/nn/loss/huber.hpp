#pragma once
// Huber's loss (1964): quadratic near zero, linear beyond δ, so that the gradient of outliers is bounded.
//   l = d² / 2 for |d| ≤ δ,  δ (|d| − δ/2) beyond;   l' = d clamped to [−δ, δ];   d = x − t.   Mean over all elements.

#include <cairn/nn/loss/elementwise.hpp>

namespace cairn {

namespace functors {

/// d²/2 for |d| ≤ limit, limit (|d| − limit/2) beyond.
template <class T>
struct clamped_difference {
    T limit;
    CAIRN_HD T operator()(T x, T t, T scale, T& gradient) const {
        const T d = x - t, inside = d > limit ? limit : d < -limit ? -limit : d;
        gradient = scale * inside;
        return inside * (d - inside / 2);
    }
};

}  // namespace functors

/// Loss of regression with outliers. Prediction and target of equal shape (samples, outputs…).
struct huber {
    double delta = 1;  // δ > 0, in the units of the target
    element_weights weights = {};

    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> prediction, const tensor<T, D>& target) const {
        require(delta > 0, "huber: delta ", delta, "; it must be positive");
        return elementwise_loss("huber", std::move(prediction), target, weights,
                                functors::clamped_difference<T>{static_cast<T>(delta)});
    }
};

}  // namespace cairn
