#pragma once
// Convolution over one to three spatial axes, channels last:
//   y[n, o, k] = b[k] + sum over t, c of x[n, o stride + t dilation - pad, c] w[k, t, c]
// x (N, in…, C), w (K, kernel…, C / groups), b (K), y (N, out…, K). Saved: x; after backward_input also dy.
// The algorithm (direct, Winograd, GEMM) is the kernel's business: device/cpu/conv.hpp. Tested against
// tests/oracle/conv.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/conv.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/per_axis.hpp>

namespace cairn {

/// Convolution layer; `dims` says how many spatial axes the tensors have.
template <class T = float, Device D = cpu>
class conv {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t in = 0, out = 0;
        per_axis kernel = 3, stride = 1, pad = 0, dilation = 1;
        index_t groups = 1;
        bool bias = true;
        int dims = 2;
        init_rule init = cairn::init::pytorch;
        init_rule bias_init = cairn::init::pytorch;
    };

    explicit conv(config c) : dims_(c.dims), has_bias_(c.bias) {
        require(dims_ >= 1 && dims_ <= 3, "conv: ", dims_, " spatial axes; 1, 2 or 3 are possible");
        geometry_.c_in = c.in;
        geometry_.c_out = c.out;
        geometry_.groups = c.groups;
        geometry_.kernel = c.kernel.expand(dims_, 1, "conv: kernel");
        geometry_.stride = c.stride.expand(dims_, 1, "conv: stride");
        geometry_.pad = c.pad.expand(dims_, 0, "conv: pad");
        geometry_.dilation = c.dilation.expand(dims_, 1, "conv: dilation");
        require(c.in > 0 && c.out > 0 && c.groups > 0 && c.in % c.groups == 0 && c.out % c.groups == 0, "conv ", c.in,
                " -> ", c.out, " channels in ", c.groups, " groups: numbers must be positive and divide");
        for (std::size_t a = 0; a < 3; ++a)
            require(geometry_.kernel[a] > 0 && geometry_.stride[a] > 0 && geometry_.pad[a] >= 0 &&
                        geometry_.dilation[a] > 0,
                    describe(), ": kernel, stride and dilation must be positive, pad not negative");

        weight_.shape = {c.out};
        for (int a = 3 - dims_; a < 3; ++a) weight_.shape.push_back(geometry_.kernel[static_cast<std::size_t>(a)]);
        weight_.shape.push_back(c.in / c.groups);
        const index_t window = geometry_.kernel_points();
        weight_.init = c.init(c.in / c.groups * window, c.out / c.groups * window);
        bias_.shape = {c.out};
        bias_.init = c.bias_init(c.in / c.groups * window, c.out / c.groups * window);
        bias_.decay = false;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        if (weight_.value.empty())
            fail(describe(), ": parameters have no memory; make an arena of the model's parameters() first");
        const conv_geometry g = geometry(x.shape());
        tensor<T, D> y(result_shape(g));  // (N, out…, K)
        const tensor<T, D> weight = cast<T>(weight_.value), bias = has_bias_ ? cast<T>(bias_.value) : tensor<T, D>{};
        conv_forward(D{}, g, x.data(), weight.data(), has_bias_ ? bias.data() : nullptr, y.data());
        announce(p.curvature, samples(g).input(x.data()));
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

    shape output_shape(const shape& in) const { return result_shape(geometry(in)); }

    layer_cost cost(const shape& in) const {
        const conv_geometry g = geometry(in);
        const double size = sizeof(T), x = double(g.x_elements()), y = double(g.y_elements()),
                     w = double(g.w_elements());
        const double bias = has_bias_ ? y : 0;
        layer_cost c;
        c.forward = {g.flops() + bias, size * (x + w + y)};
        c.backward_input = {g.flops(), size * (x + w + y)};
        c.backward_weight = {g.flops() + bias, size * (x + y) + sizeof(weight_of<T>) * w};
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
        if (in.rank() != dims_ + 2 || in.back() != geometry_.c_in)
            fail(describe(), " takes ", expected(), ", got ", in);
        conv_geometry g = geometry_;
        g.n = in[0];
        for (int a = 0; a < dims_; ++a) g.in[static_cast<std::size_t>(3 - dims_ + a)] = in[a + 1];
        g = g.with_output();
        if (g.out_points() <= 0)
            fail(describe(), " takes ", expected(), " with images no smaller than its kernel, got ", in);
        return g;
    }

private:
    std::string expected() const {
        constexpr const char* axes[] = {"(N, W, ", "(N, H, W, ", "(N, D, H, W, "};
        return concat(axes[dims_ - 1], geometry_.c_in, ')');
    }

    shape result_shape(const conv_geometry& g) const {
        shape out{g.n};
        for (int a = 3 - dims_; a < 3; ++a) out.push_back(g.out[static_cast<std::size_t>(a)]);
        out.push_back(g.c_out);
        return out;
    }

    tensor<T, D> input_gradient(const tensor<T, D>& dy, const shape& in) {
        tensor<T, D> dx(in);
        conv_backward_input(D{}, geometry(in), dy.data(), cast<T>(weight_.value).data(), dx.data());
        return dx;
    }

    void weight_gradient(const tensor<T, D>& x, const tensor<T, D>& dy, const pass_context& p) {
        const conv_geometry g = geometry(x.shape());
        announce(p.curvature, samples(g).output_gradient(dy.data()));
        if (!p.weight_gradient) return;
        conv_backward_weight(D{}, g, x.data(), dy.data(), weight_.grad.data(), has_bias_ ? bias_.grad.data() : nullptr);
    }

    curvature_samples<T> samples(const conv_geometry& g) const {
        return {.kind = rows_kind::convolution,
                .weight = weight_.id,
                .bias = has_bias_ ? bias_.id : -1,
                .examples = g.n,
                .positions = g.out_points(),
                .in = g.kernel_points() * (g.c_in / g.groups),
                .out = g.c_out / g.groups,
                .conv = g};
    }

    int dims_;
    bool has_bias_;
    conv_geometry geometry_;
    layer_parameter<T, D> weight_, bias_;
};

CAIRN_COMPILED_CLASS(conv)

}  // namespace cairn
