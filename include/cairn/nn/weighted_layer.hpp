#pragma once
// Common part of layers with a weight: parameters, and saved tensors. Saved: x, by forward in slot 0; after
// backward_input also dy.

#include <cairn/core/parameter.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/layer.hpp>

#include <utility>

namespace cairn {

/// Layer L has a weight, perhaps a bias, and
///   input_gradient(dy, shape of x) → dx
///   weight_gradient(x, dy, pass)            of both parameters; only if pass.weight_gradient
template <class L, class T, Device D>
class weighted_layer {
public:
    using value_type = T;
    using device = D;

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = p.input_gradient ? self().input_gradient(dy, saved.get(0).shape()) : tensor<T, D>{};
        saved.put_exact(1, std::move(dy));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = saved.take(0), dy = saved.take(1);
        self().weight_gradient(x, dy, p);
    }

    /// Both halves; x is let go before dx is made.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> x = saved.take(0);
        const shape in = x.shape();
        self().weight_gradient(x, dy, p);
        x.reset();
        return p.input_gradient ? self().input_gradient(dy, in) : tensor<T, D>{};
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> list{{"weight", &weight_}};
        if (has_bias_) list.push_back({"bias", &bias_});
        return list;
    }

protected:
    using S = weight_of<T>;  // of scalars and sums

    void set_parameters(shape weight, initializer of_weight, index_t biases, initializer of_bias) {
        weight_.shape = std::move(weight);
        weight_.init = of_weight;
        has_bias_ = biases > 0;
        bias_.shape = {biases};
        bias_.init = of_bias;
        bias_.decay = false;
    }

    tensor<T, D> weight() const { return cast<T>(weight_.value); }
    tensor<T, D> bias() const { return has_bias_ ? cast<T>(bias_.value) : tensor<T, D>{}; }  // its data() is null
    phase_cost cost_of_weight() const { return cast_cost<T, S>(double(weight_.shape.size())); }
    phase_cost cost_of_bias() const { return cast_cost<T, S>(has_bias_ ? double(bias_.shape.size()) : 0); }
    S* bias_gradient() { return has_bias_ ? bias_.grad.data() : nullptr; }
    int bias_id() const { return has_bias_ ? bias_.id : -1; }

    bool has_bias_ = false;
    layer_parameter<T, D> weight_, bias_;

private:
    L& self() { return static_cast<L&>(*this); }
};

}  // namespace cairn
