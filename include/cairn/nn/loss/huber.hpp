#pragma once
// Huber's loss (1964): square near zero, straight beyond δ, so that outliers pull with a bounded force.
//   l = d² / 2 for |d| ≤ δ,  δ (|d| − δ/2) beyond;   l' = d clamped to [−δ, δ];   d = x − t.   Mean over all elements.

#include <cairn/nn/loss/elementwise.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

/// Loss of regression with outliers. Prediction and target of equal shape (samples, outputs…).
struct huber {
    double delta = 1;  // δ > 0, in the units of the target
    element_weights weights = {};

    template <class T>
    loss_result<T, cpu> operator()(tensor<T, cpu> prediction, const tensor<T, cpu>& target) const {
        require(delta > 0, "huber: delta ", delta, "; it must be positive");
        const T limit = static_cast<T>(delta);
        return detail::elementwise_loss("huber", std::move(prediction), target, weights,
                                        [=](T x, T t, T scale, T& gradient) {
                                            const T d = x - t;
                                            const T inside = d > limit ? limit : d < -limit ? -limit : d;
                                            gradient = scale * inside;
                                            return inside * (d - inside / 2);  // d²/2 inside; δ (|d| − δ/2) outside
                                        });
    }
};

}  // namespace cairn
