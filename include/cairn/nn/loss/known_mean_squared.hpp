#pragma once
// Mean squared error over the targets that are known, the others are NaN.
//   l(x, t) = (x − t)²,   l' = 2 (x − t);   0 where t is NaN
// value = Σ w l / n: unknown targets count in the divisor, so that the mean over the parts of a batch is that of the
// batch. Tested against a plain loop and numerical gradients.

#include <cairn/nn/loss/elementwise.hpp>

namespace cairn {

namespace functors {

/// Loss of one value and its gradient; none where the target is NaN.
struct known_squared_difference {
    template <class T>
    CAIRN_HD T operator()(T x, T t, T scale, T& gradient) const {
        const T difference = t != t ? T(0) : x - t;
        gradient = scale * 2 * difference;
        return difference * difference;
    }
};

}  // namespace functors

/// Loss of values some of which are not known. Prediction and target of equal shape (samples, outputs…).
struct known_mean_squared {
    element_weights weights = {};

    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> prediction, const tensor<T, D>& target) const {
        return elementwise_loss("known_mean_squared", std::move(prediction), target, weights,
                                functors::known_squared_difference{});
    }
};

}  // namespace cairn
