#pragma once
// Mean squared error.   l(x, t) = (x − t)²,   l' = 2 (x − t),   mean over all elements.
// Bytes per element: read x, t, write the gradient.

#include <cairn/nn/loss/elementwise.hpp>

namespace cairn {

/// Loss of regression. Prediction and target of equal shape (samples, outputs…).
struct mean_squared {
    element_weights weights = {};

    template <class T>
    loss_result<T, cpu> operator()(tensor<T, cpu> prediction, const tensor<T, cpu>& target) const {
        return detail::elementwise_loss("mean_squared", std::move(prediction), target, weights,
                                        [](T x, T t, T scale, T& gradient) {
                                            const T difference = x - t;
                                            gradient = scale * 2 * difference;
                                            return difference * difference;
                                        });
    }
};

}  // namespace cairn
