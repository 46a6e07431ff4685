#pragma once
// Convolution over one to three spatial axes, channels last:
//   y[n, o, k] = b[k] + sum over t, c of x[n, o stride + t dilation - pad, c] w[k, t, c]
// x (N, in…, C), w (K, kernel…, C / groups), b (K), y (N, out…, K). Saved: x; after backward_input also dy.
// The kernel chooses the algorithm (direct, Winograd, GEMM): device/cpu/conv.hpp. Tested against tests/oracle/conv.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/nn/windowed_layer.hpp>

namespace cairn {

/// Convolution layer over tensors with `dims` spatial axes.
template <class T = float, Device D = cpu>
class conv : public windowed_layer<conv<T, D>, T, D> {
public:
    struct config {
        index_t in = 0, out = 0;
        per_axis kernel = 3, stride = 1, pad = 0, dilation = 1;
        index_t groups = 1;
        bool bias = true;
        int dims = 2;
        init_rule init = cairn::init::pytorch;
        init_rule bias_init = cairn::init::pytorch;
    };

    explicit conv(const config& c) : windowed_layer<conv, T, D>(c, "conv", false) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, weight_);
        const conv_geometry g = geometry(x.shape());
        tensor<T, D> y(this->with_channels(g.n, g.out, g.c_out));
        const tensor<T, D> weight = this->weight(), bias = this->bias();
        conv_forward(D{}, g, x.data(), weight.data(), bias.data(), y.data());
        announce(p.curvature, samples(g).input(x.data()));
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) {
        tensor<T, D> dx(in);
        conv_backward_input(D{}, geometry(in), dy.data(), this->weight().data(), dx.data());
        return dx;
    }

    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        const conv_geometry g = geometry(x.shape());
        announce(p.curvature, samples(g).output_gradient(dy.data()));
        if (!p.weight_gradient) return;
        conv_backward_weight(D{}, g, x.data(), dy.data(), weight_.grad.data(), this->bias_gradient());
    }

    shape output_shape(const shape& in) const {
        const conv_geometry g = geometry(in);
        return this->with_channels(g.n, g.out, g.c_out);
    }

    layer_cost cost(const shape& in) const {
        const conv_geometry g = geometry(in);
        const double size = sizeof(T), x = double(g.x_elements()), y = double(g.y_elements()),
                     w = double(g.w_elements());
        const double bias = has_bias_ ? y : 0;
        layer_cost c;
        c.forward = {g.flops() + bias, size * (x + w + y)};
        c.backward_input = {g.flops(), size * (x + w + y)};
        c.backward_weight = {g.flops() + bias, size * (x + y) + sizeof(weight_of<T>) * w};
        for (phase_cost* phase : {&c.forward, &c.backward_input}) *phase += this->cost_of_weight();
        c.forward += this->cost_of_bias();
        c.parameters = g.w_elements() + (has_bias_ ? g.c_out : 0);
        c.saves_input = true;
        c.weight_gradient_first = true;
        return c;
    }

    /// For example "conv 3x3 64 -> 128 stride 2x2".
    std::string describe() const {
        const auto unless = [&](const char* what, const std::array<index_t, 3>& values, index_t usual) {
            for (int a = 3 - dims_; a < 3; ++a)
                if (values[static_cast<std::size_t>(a)] != usual) return what + axes_text(values, dims_);
            return std::string{};
        };
        return concat("conv ", axes_text(geometry_.kernel, dims_), ' ', geometry_.c_in, " -> ", geometry_.c_out,
                      unless(" stride ", geometry_.stride, 1), unless(" dilation ", geometry_.dilation, 1),
                      geometry_.groups > 1 ? concat(" groups ", geometry_.groups) : "");
    }

    /// The geometry for one input shape. Throws if that shape does not fit the layer.
    conv_geometry geometry(const shape& in) const {
        conv_geometry g = geometry_;
        this->read_images(in, g.c_in, g.in);
        g.n = in[0];
        g = g.with_output();
        if (g.out_points() <= 0) this->fail_input(in, g.c_in, " with images no smaller than its kernel");
        return g;
    }

private:
    using base = windowed_layer<conv, T, D>;
    using base::dims_, base::geometry_, base::has_bias_, base::weight_;

    curvature_samples<T> samples(const conv_geometry& g) const {
        return {.kind = rows_kind::convolution,
                .weight = weight_.id,
                .bias = this->bias_id(),
                .examples = g.n,
                .positions = g.out_points(),
                .in = g.kernel_points() * (g.c_in / g.groups),
                .out = g.c_out / g.groups,
                .conv = g};
    }
};

CAIRN_COMPILED_CLASS(conv)

}  // namespace cairn
