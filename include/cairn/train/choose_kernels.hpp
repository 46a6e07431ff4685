#pragma once
// Kernels that are chosen by measurement (device/autotune.hpp) are chosen before the first step.

#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/preconditioner.hpp>

#include <cstdint>

namespace cairn {

/// Runs forward, and in training backward, once on zeros of shape `in`, so that each kernel has its algorithm and
/// `curvature`, which may be null, knows the layers. Gradients are zero afterwards; nothing else changes.
template <class T, Device D>
void choose_kernels(sequential<T, D>& model, arena<float, D>& weights, preconditioner<float, D>* curvature,
                    const shape& in, mode how, std::uint64_t seed) {
    pass_context p{.mode = how, .random = {.seed = seed}, .repeated = true, .input_gradient = false};
    if (curvature && p.training()) p.curvature = curvature->discover();
    saved_tensors<T, D> scratch;
    tensor<T, D> y = model.forward(tensor<T, D>::zeros(in), scratch, p);
    if (!p.training()) return;
    model.backward(tensor<T, D>::zeros(y.shape()), scratch, p);
    weights.zero_grad();
}

}  // namespace cairn
