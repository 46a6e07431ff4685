#pragma once
// Kernels that are chosen by measurement (device/autotune.hpp) are chosen before the first step.

#include <cairn/nn/sequential.hpp>
#include <cairn/train/model_stages.hpp>

#include <cstdint>

namespace cairn {

/// Runs forward, and in training backward, once on zeros of shape `in`, so that each kernel has its algorithm and
/// `curvature`, which may be null, knows the layers: it is discover()'s. Gradients are zero afterwards; nothing else
/// changes. `input_gradient`: of a stage that is not the first.
template <class T, Device D>
void choose_kernels(sequential<T, D>& model, arena<float, D>& weights, curvature_listener* curvature, const shape& in,
                    mode how, std::uint64_t seed, bool input_gradient) {
    pass_context p{.mode = how,
                   .random = {.seed = seed, .samples = in.front()},
                   .repeated = true,
                   .input_gradient = input_gradient};
    p.curvature = curvature;
    saved_tensors<T, D> scratch;
    tensor<T, D> y = model.forward(tensor<T, D>::zeros(in), scratch, p);
    if (!p.training()) return;
    model.backward(tensor<T, D>::zeros(y.shape()), scratch, p);
    weights.zero_grad();
}

/// The same of all stages of a rank; `in`: of the whole model.
template <class T, Device D>
void choose_kernels(model_stages<D, T>& model, curvature_listener* curvature, const shape& in, mode how,
                    std::uint64_t seed) {
    const std::vector<int> numbers = model.numbers();
    for (std::size_t s = 0; s < numbers.size(); ++s)
        choose_kernels(model.stages()[s].layers(), model.weights(), curvature, model.input_of(numbers[s], in), how,
                       seed, numbers[s] > 0);
}

}  // namespace cairn
