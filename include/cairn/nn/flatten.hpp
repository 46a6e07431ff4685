#pragma once
// (N, …) → (N, product of the rest). No element moves: the result is the input's block under another shape.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/layer.hpp>

namespace cairn {

/// Turns images into rows, between convolutions and linear layers.
template <class T = float, Device D = cpu>
class flatten : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape out = output_shape(x.shape());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        return x.reshaped(out);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        const shape in = saved.take(0).shape();
        return dy.empty() && in.size() > 0 ? std::move(dy) : dy.reshaped(in);  // empty: no gradient was requested
    }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 1, "flatten takes (N, ...), got ", in);
        index_t features = 1;
        for (int axis = 1; axis < in.rank(); ++axis) features *= in[axis];
        return {in[0], features};
    }

    layer_cost cost(const shape&) const {
        layer_cost c;
        c.passes_through = true;
        return c;
    }

    std::string describe() const { return "flatten"; }
};

CAIRN_COMPILED_CLASS(flatten)

}  // namespace cairn
