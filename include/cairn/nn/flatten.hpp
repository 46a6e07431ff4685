#pragma once
// Layers that give a tensor another shape; no element moves, the result is the input's block.
//   flatten     (N, …) → (N, product of the rest)     between convolutions and linear layers
//   unsqueeze   (N, …) → (N, …, 1)                     makes values of one channel

#include <cairn/core/compiled.hpp>
#include <cairn/nn/layer.hpp>

namespace cairn {

namespace detail {

/// What both are; Derived has output_shape().
template <class Derived, class T, Device D>
class reshaping : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape out = static_cast<const Derived&>(*this).output_shape(x.shape());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        return x.reshaped(out);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        const shape in = saved.take(0).shape();
        return dy.empty() && in.size() > 0 ? std::move(dy) : dy.reshaped(in);  // empty: no gradient was requested
    }

    layer_cost cost(const shape&) const {
        layer_cost c;
        c.passes_through = true;
        return c;
    }
};

}  // namespace detail

/// See the top of the file.
template <class T = float, Device D = cpu>
class flatten : public detail::reshaping<flatten<T, D>, T, D> {
public:
    shape output_shape(const shape& in) const {
        require(in.rank() >= 1, "flatten takes (N, ...), got ", in);
        index_t features = 1;
        for (int axis = 1; axis < in.rank(); ++axis) features *= in[axis];
        return {in[0], features};
    }

    std::string describe() const { return "flatten"; }
};

/// See the top of the file.
template <class T = float, Device D = cpu>
class unsqueeze : public detail::reshaping<unsqueeze<T, D>, T, D> {
public:
    shape output_shape(shape in) const {
        in.push_back(1);
        return in;
    }

    std::string describe() const { return "unsqueeze"; }
};

CAIRN_COMPILED_CLASS(flatten)
CAIRN_COMPILED_CLASS(unsqueeze)

}  // namespace cairn
