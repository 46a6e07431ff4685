#pragma once
// Mean squared error.   l(x, t) = (x − t)²,   l' = 2 (x − t),   mean over all elements.
// Bytes per element: read x, t, write the gradient.

#include <cairn/nn/loss/elementwise.hpp>

namespace cairn {

namespace functors {

struct squared_difference {
    template <class T>
    CAIRN_HD T operator()(T x, T t, T scale, T& gradient) const {
        const T difference = x - t;
        gradient = scale * 2 * difference;
        return difference * difference;
    }
};

}  // namespace functors

/// Loss of regression. Prediction and target of equal shape (samples, outputs…).
struct mean_squared {
    element_weights weights = {};

    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> prediction, const tensor<T, D>& target) const {
        return elementwise_loss("mean_squared", std::move(prediction), target, weights, functors::squared_difference{});
    }
};

}  // namespace cairn
