#pragma once
// Transposed convolution over one to three spatial axes, channels last: the adjoint of a convolution, which makes
// images larger (Zeiler et al. 2010; Dumoulin and Visin 2016, section 4).
//   y[n, i stride + t dilation - pad, k] += sum over c of x[n, i, c] w[c, t, k],   then + b[k]
//   out = (in - 1) stride + dilation (kernel - 1) + 1 - 2 pad + out_pad        out_pad < stride: rows that only b fills
// x (N, in…, C), w (C, kernel…, K / groups), b (K), y (N, out…, K). Its three phases are those of a convolution K -> C:
//   y = its backward_input,   dx = its forward,   dw = its backward_weight with x and dy in each other's place
// Saved: x; after backward_input also dy. Tested against the sum above in plain loops.

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/windowed_layer.hpp>

namespace cairn {

/// Transposed convolution layer over tensors with `dims` spatial axes. It announces no rows to K-FAC.
template <class T = float, Device D = cpu>
class conv_transpose : public windowed_layer<conv_transpose<T, D>, T, D> {
public:
    struct config {
        index_t in = 0, out = 0;
        per_axis kernel = 2, stride = 2, pad = 0, out_pad = 0, dilation = 1;
        index_t groups = 1;
        bool bias = true;
        int dims = 2;
        init_rule init = cairn::init::pytorch;
        init_rule bias_init = cairn::init::pytorch;
    };

    explicit conv_transpose(const config& c) : windowed_layer<conv_transpose, T, D>(c, "conv_transpose", true) {
        out_pad_ = c.out_pad.expand(dims_, 0, "conv_transpose: out_pad");
        for (std::size_t a = 0; a < 3; ++a)
            require(out_pad_[a] >= 0 && out_pad_[a] < geometry_.stride[a], describe(), ": out_pad ", out_pad_[a],
                    " must be at least 0 and less than the stride, ", geometry_.stride[a]);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, weight_);
        const conv_geometry g = adjoint(x.shape());
        tensor<T, D> y(this->with_channels(g.n, g.in, g.c_in));
        const tensor<T, D> weight = this->weight(), bias = this->bias();
        conv_backward_input(D{}, g, x.data(), weight.data(), y.data(), bias.data());
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) {
        tensor<T, D> dx(in);
        conv_forward(D{}, adjoint(in), dy.data(), this->weight().data(), static_cast<const T*>(nullptr), dx.data());
        return dx;
    }

    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        if (!p.weight_gradient) return;
        conv_backward_weight(D{}, adjoint(x.shape()), dy.data(), x.data(), weight_.grad.data(),
                             static_cast<weight_of<T>*>(nullptr));
        if (has_bias_ && dy.size() > 0)
            column_sums(D{}, dy.size() / dy.extent(-1), dy.extent(-1), dy.data(), this->bias_gradient(), true);
    }

    shape output_shape(const shape& in) const {
        const conv_geometry g = adjoint(in);
        return this->with_channels(g.n, g.in, g.c_in);
    }

    layer_cost cost(const shape& in) const {
        const conv_geometry g = adjoint(in);
        const double size = sizeof(T), x = double(g.y_elements()), y = double(g.x_elements()),
                     w = double(g.w_elements());
        layer_cost c;
        c.forward = c.backward_input = {g.flops(), size * (x + w + y)};
        c.backward_weight = {g.flops(), size * (x + y) + sizeof(weight_of<T>) * w};
        if (has_bias_) {
            c.forward += {y, size * (2 * y + double(g.c_in))};
            c.backward_weight += {y, size * y};
        }
        for (phase_cost* phase : {&c.forward, &c.backward_input}) *phase += this->cost_of_weight();
        c.forward += this->cost_of_bias();
        c.parameters = g.w_elements() + (has_bias_ ? g.c_in : 0);
        c.saves_input = true;
        c.weight_gradient_first = true;
        return c;
    }

    /// For example "conv_transpose 2x2x2 64 -> 32 stride 2x2x2".
    std::string describe() const {
        return concat("conv_transpose ", axes_text(geometry_.kernel, dims_), ' ', geometry_.c_out, " -> ",
                      geometry_.c_in, " stride ", axes_text(geometry_.stride, dims_),
                      geometry_.groups > 1 ? concat(" groups ", geometry_.groups) : "");
    }

    /// The convolution that maps y's shape to x's. Throws if shape `in` of x does not fit the layer.
    conv_geometry adjoint(const shape& in) const {
        conv_geometry g = geometry_;
        this->read_images(in, g.c_out, g.out);
        g.n = in[0];
        for (auto axis = static_cast<std::size_t>(3 - dims_); axis < 3; ++axis) {
            g.in[axis] = (g.out[axis] - 1) * g.stride[axis] + g.dilation[axis] * (g.kernel[axis] - 1) + 1 -
                         2 * g.pad[axis] + out_pad_[axis];
            // out_pad < stride, so the convolution of y is as large as x again.
            if (g.out[axis] < 1 || g.in[axis] < 1)
                this->fail_input(in, g.c_out, " with images that are not all padding");
        }
        return g;
    }

private:
    using base = windowed_layer<conv_transpose, T, D>;
    using base::dims_, base::geometry_, base::has_bias_, base::weight_;

    std::array<index_t, 3> out_pad_{};
};

CAIRN_COMPILED_CLASS(conv_transpose)

}  // namespace cairn
