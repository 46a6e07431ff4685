#pragma once
// Common part of convolutions and transposed convolutions: settings of their windows, parameters, shapes.

#include <cairn/device/conv_geometry.hpp>
#include <cairn/nn/per_axis.hpp>
#include <cairn/nn/weighted_layer.hpp>

#include <array>
#include <string>

namespace cairn {

/// `geometry_` is that of the layer, or of the convolution K -> C whose adjoint it is, but for the images.
template <class L, class T, Device D>
class windowed_layer : public weighted_layer<L, T, D> {
protected:
    /// Throws on settings that make no layer, with its `name`.
    template <class Config>
    windowed_layer(const Config& c, const std::string& name, bool adjoint) : dims_(c.dims) {
        require(dims_ >= 1 && dims_ <= 3, name, ": ", dims_, " spatial axes; 1, 2 or 3 are possible");
        geometry_.c_in = adjoint ? c.out : c.in;
        geometry_.c_out = adjoint ? c.in : c.out;
        geometry_.groups = c.groups;
        geometry_.kernel = c.kernel.expand(dims_, 1, (name + ": kernel").c_str());
        geometry_.stride = c.stride.expand(dims_, 1, (name + ": stride").c_str());
        geometry_.pad = c.pad.expand(dims_, 0, (name + ": pad").c_str());
        geometry_.dilation = c.dilation.expand(dims_, 1, (name + ": dilation").c_str());
        require(c.in > 0 && c.out > 0 && c.groups > 0 && c.in % c.groups == 0 && c.out % c.groups == 0, name, ' ', c.in,
                " -> ", c.out, " channels in ", c.groups, " groups: numbers must be positive and divide");
        for (std::size_t a = 0; a < 3; ++a)
            require(geometry_.kernel[a] > 0 && geometry_.stride[a] > 0 && geometry_.pad[a] >= 0 &&
                        geometry_.dilation[a] > 0,
                    name, ' ', axes_text(geometry_.kernel, dims_), ' ', c.in, " -> ", c.out,
                    ": kernel, stride and dilation must be positive, pad not negative");

        // (filters, kernel…, channels of a group). Fans as PyTorch counts them: of the convolution.
        const index_t window = geometry_.kernel_points(), each = geometry_.c_in / c.groups;
        const index_t fan_in = each * window, fan_out = geometry_.c_out / c.groups * window;
        this->set_parameters(with_channels(geometry_.c_out, geometry_.kernel, each), c.init(fan_in, fan_out),
                             c.bias ? c.out : 0, c.bias_init(fan_in, fan_out));
    }

    /// (first, of the axes that the layer has, last).
    shape with_channels(index_t first, const std::array<index_t, 3>& axes, index_t last) const {
        shape s{first};
        for (int a = 3 - dims_; a < 3; ++a) s.push_back(axes[static_cast<std::size_t>(a)]);
        s.push_back(last);
        return s;
    }

    /// Throws unless `in` is of images of so many channels; writes their extents to `axes`.
    void read_images(const shape& in, index_t channels, std::array<index_t, 3>& axes) const {
        if (in.rank() != dims_ + 2 || in.back() != channels) fail_input(in, channels, "");
        for (int a = 0; a < dims_; ++a) axes[static_cast<std::size_t>(3 - dims_ + a)] = in[a + 1];
    }
    [[noreturn]] void fail_input(const shape& in, index_t channels, const char* also) const {
        constexpr const char* axes[] = {"(N, W, ", "(N, H, W, ", "(N, D, H, W, "};
        fail(static_cast<const L&>(*this).describe(), " takes ", axes[dims_ - 1], channels, ')', also, ", got ", in);
    }

    int dims_;
    conv_geometry geometry_;
};

}  // namespace cairn
