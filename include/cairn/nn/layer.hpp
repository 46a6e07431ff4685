#pragma once
// The seam that every layer satisfies.
//   y  = forward(x, saved, pass)            may be repeated with the same pass and gives the same bits
//   dx = backward_input(dy, saved, pass)    may run before backward_weight, and keeps what that will need
//        backward_weight(saved, pass)       parameter gradients += …, then no saved tensor of this layer is left
// The two halves of backward are apart for zero-bubble schedules, K-FAC and overlapped reduction.
//   parameters()         trained tensors by name; memory and gradients come from an arena (core/arena.hpp)
//   output_shape(in)     the shape of y; throws where `in` does not fit, with the layer and both shapes
//   cost(in)             arithmetic, memory traffic and saved bytes (core/cost.hpp)
//   describe()           for example "linear 784 -> 10"
// Tensors travel by value: a layer that holds the only handle to a block (tensor::unique) may reuse its memory for the
// result. A layer also
//   saves tensors only if pass.training(), and takes them out of `saved` in backward
//   may return an empty dx if not pass.input_gradient; adds to parameters' gradients, unless not pass.weight_gradient
//   leaves running statistics as they are if pass.repeated, and draws random numbers from pass.random alone
//   announces the inputs and output gradients of each weight to pass.curvature (device/curvature_samples.hpp)
//   never calls pass.listener: any_layer does, after the layer's backward (nn/any_layer.hpp)
// The laws of every layer: tests/nn/layer_laws.hpp. A complete example: course/write-your-own-layer.md. The smallest
// model is nn/dropout.hpp, the typical one nn/linear.hpp.

#include <cairn/core/cost.hpp>
#include <cairn/core/parameter.hpp>
#include <cairn/nn/pass_context.hpp>
#include <cairn/nn/saved_tensors.hpp>

#include <concepts>
#include <string>
#include <utility>

namespace cairn {

template <class L, class T, class D>
concept LayerOver = requires(L& layer, const L& constant, tensor<T, D> t, saved_tensors<T, D>& saved,
                             const pass_context& p, const shape& in) {
    { layer.forward(std::move(t), saved, p) } -> std::same_as<tensor<T, D>>;
    { layer.backward_input(std::move(t), saved, p) } -> std::same_as<tensor<T, D>>;
    {layer.backward_weight(saved, p)};
    { layer.parameters() } -> std::same_as<layer_parameters<T, D>>;
    { constant.output_shape(in) } -> std::same_as<shape>;
    { constant.cost(in) } -> std::same_as<layer_cost>;
    { constant.describe() } -> std::convertible_to<std::string>;
};

/// A layer over its own value_type and device. Two members are optional:
///   backward(dy, saved, pass) → dx    both halves at once, where that is cheaper or frees memory sooner
///   buffers()                         state that is not trained, by name: running statistics
template <class L>
concept Layer = LayerOver<L, typename L::value_type, typename L::device>;

/// Base of layers that train nothing.
template <class T, Device D>
struct layer_without_parameters {
    using value_type = T;
    using device = D;

    void backward_weight(saved_tensors<T, D>&, const pass_context&) {}
    layer_parameters<T, D> parameters() { return {}; }
};

/// Both halves of backward; afterwards the layer has no saved tensors.
template <Layer L>
auto backward(L& layer, tensor<typename L::value_type, typename L::device> dy,
              saved_tensors<typename L::value_type, typename L::device>& saved, const pass_context& p) {
    if constexpr (requires { layer.backward(std::move(dy), saved, p); }) {
        return layer.backward(std::move(dy), saved, p);
    } else {
        auto dx = layer.backward_input(std::move(dy), saved, p);
        layer.backward_weight(saved, p);
        saved.clear();
        return dx;
    }
}

/// The layer's state that is not trained; empty for most.
template <Layer L>
layer_buffers<typename L::value_type, typename L::device> buffers_of(L& layer) {
    if constexpr (requires { layer.buffers(); })
        return layer.buffers();
    else
        return {};
}

/// Throws, naming the layer, where a parameter of it is not in an arena yet.
template <class L, class P>
void require_memory(const L& layer, const P& p) {
    if (p.value.empty())
        fail(layer.describe(), ": parameters have no memory; make an arena of the model's parameters() first");
}

}  // namespace cairn
