#pragma once
// The seam that every loss satisfies.
//   {value, gradient} = loss(prediction, target)      value = mean over the batch,  gradient = d value / d prediction
// The prediction is passed by value: given the only handle to its block, a loss writes the gradient over it.

#include <cairn/core/device_scalar.hpp>

#include <concepts>

namespace cairn {

/// Result of a loss.
template <class T, Device D = cpu>
struct loss_result {
    scalar_on<D> value = 0;  // mean over the batch
    tensor<T, D> gradient;   // of the value with respect to the prediction, same shape
};

/// A loss over predictions of T and targets of Target.
template <class L, class T, class Target, class D = cpu>
concept Loss = requires(const L& loss, tensor<T, D> prediction, const tensor<Target, D>& target) {
    { loss(std::move(prediction), target) } -> std::same_as<loss_result<T, D>>;
};

/// Memory for the gradient: the prediction's own block if it has no other owner.
template <class T, Device D>
tensor<T, D> gradient_over(const tensor<T, D>& prediction) {
    return prediction.unique() ? prediction.share() : tensor<T, D>(prediction.shape());
}

}  // namespace cairn
