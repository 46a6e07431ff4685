#pragma once
// Transposed convolution over one to three spatial axes, channels last: the adjoint of a convolution, which makes
// images larger (Zeiler et al. 2010; Dumoulin and Visin 2016, section 4).
//   y[n, i stride + t dilation - pad, k] += sum over c of x[n, i, c] w[c, t, k],   then + b[k]
//   out = (in - 1) stride + dilation (kernel - 1) + 1 - 2 pad + out_pad        out_pad < stride: rows that only b fills
// x (N, in…, C), w (C, kernel…, K / groups), b (K), y (N, out…, K). Its three phases are those of a convolution K -> C:
//   y = its backward_input,   dx = its forward,   dw = its backward_weight with x and dy in each other's place
// Saved: x; after backward_input also dy. Tested against the sum above in plain loops.

#include <cairn/core/compiled.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/per_axis.hpp>

namespace cairn {

/// Transposed convolution layer; `dims` says how many spatial axes the tensors have. It announces no rows to K-FAC.
template <class T = float, Device D = cpu>
class conv_transpose {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t in = 0, out = 0;
        per_axis kernel = 2, stride = 2, pad = 0, out_pad = 0, dilation = 1;
        index_t groups = 1;
        bool bias = true;
        int dims = 2;
        init_rule init = cairn::init::pytorch;
        init_rule bias_init = cairn::init::pytorch;
    };

    explicit conv_transpose(config c) : dims_(c.dims), has_bias_(c.bias) {
        require(dims_ >= 1 && dims_ <= 3, "conv_transpose: ", dims_, " spatial axes; 1, 2 or 3 are possible");
        adjoint_.c_in = c.out;
        adjoint_.c_out = c.in;
        adjoint_.groups = c.groups;
        adjoint_.kernel = c.kernel.expand(dims_, 1, "conv_transpose: kernel");
        adjoint_.stride = c.stride.expand(dims_, 1, "conv_transpose: stride");
        adjoint_.pad = c.pad.expand(dims_, 0, "conv_transpose: pad");
        adjoint_.dilation = c.dilation.expand(dims_, 1, "conv_transpose: dilation");
        out_pad_ = c.out_pad.expand(dims_, 0, "conv_transpose: out_pad");
        require(c.in > 0 && c.out > 0 && c.groups > 0 && c.in % c.groups == 0 && c.out % c.groups == 0,
                "conv_transpose ", c.in, " -> ", c.out, " channels in ", c.groups,
                " groups: numbers must be positive and divide");
        for (std::size_t a = 0; a < 3; ++a) {
            require(
                adjoint_.kernel[a] > 0 && adjoint_.stride[a] > 0 && adjoint_.pad[a] >= 0 && adjoint_.dilation[a] > 0,
                describe(), ": kernel, stride and dilation must be positive, pad not negative");
            require(out_pad_[a] >= 0 && out_pad_[a] < adjoint_.stride[a], describe(), ": out_pad ", out_pad_[a],
                    " must be at least 0 and less than the stride, ", adjoint_.stride[a]);
        }
        weight_.shape = {c.in};
        for (int a = 3 - dims_; a < 3; ++a) weight_.shape.push_back(adjoint_.kernel[static_cast<std::size_t>(a)]);
        weight_.shape.push_back(c.out / c.groups);
        const index_t window = adjoint_.kernel_points();
        // Fan-in as PyTorch counts it: of the convolution that this is the adjoint of.
        weight_.init = c.init(c.out / c.groups * window, c.in / c.groups * window);
        bias_.shape = {c.out};
        bias_.init = c.bias_init(c.out / c.groups * window, c.in / c.groups * window);
        bias_.decay = false;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        if (weight_.value.empty())
            fail(describe(), ": parameters have no memory; make an arena of the model's parameters() first");
        const conv_geometry g = adjoint(x.shape());
        tensor<T, D> y(result_shape(g));  // (N, out…, K)
        const tensor<T, D> bias = has_bias_ ? cast<T>(bias_.value) : tensor<T, D>{};
        conv_backward_input(D{}, g, x.data(), cast<T>(weight_.value).data(), y.data(), bias.data());
        if (p.training()) saved.put(0, std::move(x));
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = p.input_gradient ? input_gradient(dy, saved.get(0).shape()) : tensor<T, D>{};
        saved.put_exact(1, std::move(dy));
        return dx;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = saved.take(0), dy = saved.take(1);
        weight_gradient(x, dy, p);
    }

    /// Both halves; x is let go before dx is made.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> x = saved.take(0);
        const shape in = x.shape();
        weight_gradient(x, dy, p);
        x.reset();
        return p.input_gradient ? input_gradient(dy, in) : tensor<T, D>{};
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> list{{"weight", &weight_}};
        if (has_bias_) list.push_back({"bias", &bias_});
        return list;
    }

    shape output_shape(const shape& in) const { return result_shape(adjoint(in)); }

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
        c.parameters = g.w_elements() + (has_bias_ ? g.c_in : 0);
        c.saves_input = true;
        c.weight_gradient_first = true;
        return c;
    }

    /// For example "conv_transpose 2x2x2 64 -> 32 stride 2x2x2".
    std::string describe() const {
        return concat("conv_transpose ", axes_text(adjoint_.kernel, dims_), ' ', adjoint_.c_out, " -> ", adjoint_.c_in,
                      " stride ", axes_text(adjoint_.stride, dims_),
                      adjoint_.groups > 1 ? concat(" groups ", adjoint_.groups) : "");
    }

    /// The convolution that maps y's shape to x's. Throws if shape `in` of x does not fit the layer.
    conv_geometry adjoint(const shape& in) const {
        if (in.rank() != dims_ + 2 || in.back() != adjoint_.c_out)
            fail(describe(), " takes ", expected(), ", got ", in);
        conv_geometry g = adjoint_;
        g.n = in[0];
        for (int a = 0; a < dims_; ++a) {
            const auto axis = static_cast<std::size_t>(3 - dims_ + a);
            g.out[axis] = in[a + 1];
            g.in[axis] = (g.out[axis] - 1) * g.stride[axis] + g.dilation[axis] * (g.kernel[axis] - 1) + 1 -
                         2 * g.pad[axis] + out_pad_[axis];
            // out_pad < stride, so the convolution of y is as large as x again.
            if (g.out[axis] < 1 || g.in[axis] < 1)
                fail(describe(), " takes ", expected(), " with images that are not all padding, got ", in);
        }
        return g;
    }

private:
    std::string expected() const {
        constexpr const char* axes[] = {"(N, W, ", "(N, H, W, ", "(N, D, H, W, "};
        return concat(axes[dims_ - 1], adjoint_.c_out, ')');
    }

    shape result_shape(const conv_geometry& g) const {
        shape out{g.n};
        for (int a = 3 - dims_; a < 3; ++a) out.push_back(g.in[static_cast<std::size_t>(a)]);
        out.push_back(g.c_in);
        return out;
    }

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) {
        tensor<T, D> dx(in);
        conv_forward(D{}, adjoint(in), dy.data(), cast<T>(weight_.value).data(), static_cast<const T*>(nullptr),
                     dx.data());
        return dx;
    }

    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        if (!p.weight_gradient) return;
        conv_backward_weight(D{}, adjoint(x.shape()), dy.data(), x.data(), weight_.grad.data(),
                             static_cast<weight_of<T>*>(nullptr));
        if (has_bias_ && dy.size() > 0)
            column_sums(D{}, dy.size() / dy.extent(-1), dy.extent(-1), dy.data(), bias_.grad.data(), true);
    }

    int dims_;
    bool has_bias_;
    conv_geometry adjoint_;
    std::array<index_t, 3> out_pad_{};
    layer_parameter<T, D> weight_, bias_;
};

CAIRN_COMPILED_CLASS(conv_transpose)

}  // namespace cairn
