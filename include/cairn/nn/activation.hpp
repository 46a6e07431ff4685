#pragma once
// An elementwise activation as a layer (functions and derivatives: device/cpu/activation.hpp).
//   relu, leaky_relu       saved: one bit an element; forward and backward in place
//   sigmoid, tanh          saved: y
//   silu, gelu, gelu_tanh  saved: x

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/nn/layer.hpp>

namespace cairn {

/// y = act(x), any shape.
template <class T = float, Device D = cpu>
class activation_layer : public layer_without_parameters<T, D> {
public:
    /// slope: of leaky_relu for x ≤ 0.
    explicit activation_layer(activation act, double slope = 0.01)
        : act_(act), slope_(static_cast<weight_of<T>>(act == activation::relu ? 0 : slope)) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const activation_saves saves = p.training() ? saves_of(act_) : activation_saves::nothing;
        if (act_ == activation::none) return x;
        const shape s = x.shape();
        const index_t n = x.size();
        const T* const in = x.data();
        if (saves == activation_saves::input) saved.put(0, x.share());
        tensor<T, D> y = x.unique() ? std::move(x) : tensor<T, D>(s);
        if (saves_of(act_) == activation_saves::bits) {
            tensor<std::uint8_t, D> bits;
            if (p.training()) bits = tensor<std::uint8_t, D>({simd::mask_bytes<weight_of<T>>(n)});
            sign_activation_forward(D{}, n, slope_, in, y.data(), bits.data());
            if (p.training()) saved.put(0, std::move(bits));
        } else {
            activation_forward(D{}, act_, n, in, y.data());
        }
        if (saves == activation_saves::output) saved.put(0, y.share());
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (act_ == activation::none) return dy;
        const shape s = dy.shape();
        const index_t n = dy.size();
        const T* const gradient = dy.data();
        if (saves_of(act_) == activation_saves::bits) {
            const tensor<std::uint8_t, D> bits = saved.template take<std::uint8_t>(0);
            require(bits.size() == simd::mask_bytes<weight_of<T>>(n), describe(), ": dy ", s,
                    " has not the shape of forward's result");
            if (!p.input_gradient) return {};
            tensor<T, D> dx = dy.unique() ? std::move(dy) : tensor<T, D>(s);
            sign_activation_backward(D{}, n, slope_, gradient, bits.data(), dx.data());
            return dx;
        }
        const tensor<T, D> values = saved.take(0);
        require_shape(dy, values.shape(), "activation: dy");
        if (!p.input_gradient) return {};
        tensor<T, D> dx = dy.unique() ? std::move(dy) : tensor<T, D>(s);
        activation_backward(D{}, act_, n, values.data(), gradient, dx.data());
        return dx;
    }

    shape output_shape(const shape& in) const { return in; }

    layer_cost cost(const shape& in) const {
        layer_cost c;
        if (act_ == activation::none) {
            c.passes_through = true;
            return c;
        }
        const double n = double(in.size()), size = sizeof(T);
        const bool bits = saves_of(act_) == activation_saves::bits;
        c.forward = {activation_flops * n, 2 * size * n + (bits ? n / 8 : 0)};
        c.backward_input = {activation_backward_flops * n, bits ? 2 * size * n + n / 8 : 3 * size * n};
        c.saves_input = saves_of(act_) == activation_saves::input;
        c.saves_output = saves_of(act_) == activation_saves::output;
        if (bits) c.saved_bytes = block_bytes(simd::mask_bytes<weight_of<T>>(in.size()));
        c.in_place_forward = !c.saves_input;
        c.in_place_backward = true;
        return c;
    }

    std::string describe() const { return name_of(act_); }

private:
    activation act_;
    weight_of<T> slope_;
};

/// The common ones by name: relu<float>(), gelu<double>().
template <class T = float, Device D = cpu>
activation_layer<T, D> relu() {
    return activation_layer<T, D>(activation::relu);
}
template <class T = float, Device D = cpu>
activation_layer<T, D> leaky_relu(double slope = 0.01) {
    return activation_layer<T, D>(activation::leaky_relu, slope);
}
template <class T = float, Device D = cpu>
activation_layer<T, D> gelu() {
    return activation_layer<T, D>(activation::gelu);
}

CAIRN_COMPILED_CLASS(activation_layer)

}  // namespace cairn
