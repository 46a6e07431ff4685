#pragma once
// The trait of layers that add the skip of a residual block in the pass that writes their own result:
//   y            = forward_residual(x, skip, saved, pass)     y = activation(f(x) + skip)
//   {dx, dskip}  = backward_residual(dy, saved, pass)         in place of backward_input; backward_weight follows
// batch_norm has the trait: sum and activation then cost no pass of their own. Its only client is nn/branches.hpp.

#include <cairn/nn/layer.hpp>

#include <functional>
#include <utility>

namespace cairn {

template <class L>
concept ResidualLayer = Layer<L> &&
    requires(L& layer, tensor<typename L::value_type, typename L::device> t,
             saved_tensors<typename L::value_type, typename L::device>& saved, const pass_context& p) {
    { layer.forward_residual(std::move(t), std::move(t), saved, p) } -> std::same_as<decltype(t)>;
    { layer.backward_residual(std::move(t), saved, p) } -> std::same_as<std::pair<decltype(t), decltype(t)>>;
};

/// The trait behind any_layer; empty for a layer without it.
template <class T, Device D>
struct residual_calls {
    std::function<tensor<T, D>(tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>&, const pass_context&)> forward;
    std::function<std::pair<tensor<T, D>, tensor<T, D>>(tensor<T, D> dy, saved_tensors<T, D>&, const pass_context&)>
        backward;

    /// `layer` stays at its address.
    template <class L>
    static residual_calls of(L& layer) {
        if constexpr (ResidualLayer<L>)
            return {[&layer](tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved, const pass_context& p) {
                        return layer.forward_residual(std::move(x), std::move(skip), saved, p);
                    },
                    [&layer](tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
                        return layer.backward_residual(std::move(dy), saved, p);
                    }};
        else
            return {};
    }

    explicit operator bool() const { return static_cast<bool>(forward); }
};

}  // namespace cairn
