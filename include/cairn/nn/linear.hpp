#pragma once
// Affine map of the last axis:  y = x Wᵀ + b,   x (…, in), W (out, in), b (out), y (…, out)
//   dx = dy W      dW += dyᵀ x      db += column sums of dy
// Each is one GEMM, fused with the bias and, if the device supports it, with the bias's gradient: gemm_bias and
// linear_gradients of the device. Saved: x; after backward_input also dy. Tested against plain loops in
// tests/nn/linear_test.cpp.

#include <cairn/core/compiled.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cpu/gemm_bias.hpp>
#include <cairn/nn/weighted_layer.hpp>

#include <string>

namespace cairn {

/// Fully connected layer; all axes but the last count as batch. With a tied weight it announces no rows to K-FAC, which
/// has one layer per weight.
template <class T = float, Device D = cpu>
class linear : public weighted_layer<linear<T, D>, T, D> {
public:
    struct config {
        index_t in = 0, out = 0;
        bool bias = true;
        init_rule init = cairn::init::pytorch;
        init_rule bias_init = cairn::init::pytorch;
        std::string tied_to = {};  // path of the parameter that serves as W, such as an embedding's table; empty: none
    };

    explicit linear(config c) : config_(c) {
        require(c.in > 0 && c.out > 0, "linear ", c.in, " -> ", c.out, ": both sizes must be positive");
        this->set_parameters({c.out, c.in}, c.init(c.in, c.out), c.bias ? c.out : 0, c.bias_init(c.in, c.out));
        weight_.tied_to = c.tied_to;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, weight_);
        tensor<T, D> y(output_shape(x.shape()));  // (…, out)
        const index_t rows = y.size() / config_.out;
        const tensor<T, D> weight = this->weight(), bias = this->bias();
        gemm_bias(D{}, false, true, rows, config_.out, config_.in, S{1}, x.data(), config_.in, weight.data(),
                  config_.in, y.data(), config_.out, bias.data());
        if (config_.tied_to.empty()) announce(p.curvature, samples(x).input(x.data()));
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    // The two gradients alone, for layers around this one that save x and dy themselves.

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) {
        tensor<T, D> dx(in);
        gemm(D{}, false, false, dy.size() / config_.out, config_.in, config_.out, S{1}, dy.data(), config_.out,
             this->weight().data(), config_.in, S{0}, dx.data(), config_.in);
        return dx;
    }

    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        const index_t rows = dy.size() / config_.out;
        if (config_.tied_to.empty()) announce(p.curvature, samples(dy).output_gradient(dy.data()));
        if (!p.weight_gradient) return;
        linear_gradients(D{}, rows, config_.out, config_.in, dy.data(), x.data(), weight_.grad.data(),
                         this->bias_gradient());
    }

    shape output_shape(const shape& in) const {
        if (in.rank() < 1 || in.back() != config_.in) fail(describe(), " takes (..., ", config_.in, "), got ", in);
        return in.with(-1, config_.out);
    }

    layer_cost cost(const shape& in) const {
        const double size = sizeof(T), x = double(in.size()), y = double(output_shape(in).size());
        const double w = double(weight_.shape.size()), b = config_.bias ? double(config_.out) : 0,
                     product = 2 * y * double(config_.in);
        layer_cost c;
        c.forward = {product, size * (x + w + y)};
        c.backward_input = {product, size * (y + w + x)};
        c.backward_weight = {product, size * (y + x) + 2 * sizeof(weight_of<T>) * w};
        if (config_.bias) {
            c.forward += {y, size * b};
            c.backward_weight += {y, size * y};
        }
        for (phase_cost* phase : {&c.forward, &c.backward_input}) *phase += this->cost_of_weight();
        c.forward += this->cost_of_bias();
        c.parameters = index_t((config_.tied_to.empty() ? w : 0) + b);
        c.saves_input = true;
        c.weight_gradient_first = true;
        return c;
    }

    std::string describe() const { return concat("linear ", config_.in, " -> ", config_.out); }

private:
    using typename weighted_layer<linear, T, D>::S;
    using weighted_layer<linear, T, D>::weight_;

    // Of x or dy.
    curvature_samples<T> samples(const tensor<T, D>& t) const {
        const index_t examples = t.extent(0), rows = t.size() / t.extent(-1);
        return {.weight = weight_.id,
                .bias = this->bias_id(),
                .examples = examples,
                .positions = examples ? rows / examples : 1,
                .in = config_.in,
                .out = config_.out};
    }

    config config_;
};

CAIRN_COMPILED_CLASS(linear)

}  // namespace cairn
