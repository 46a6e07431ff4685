#pragma once
// The shape of one convolution, shared by every device and every algorithm.
//
//   y[n, o, k] = b[k] + sum_{t, c} x[n, o * stride + t * dilation - pad, c] * w[k, t, c]
//
// x is (n, in..., c_in), y is (n, out..., c_out), w is (c_out, kernel..., c_in / groups), all row-major, channels last.
// As in every deep-learning library this is a correlation: the kernel is not flipped.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <type_traits>

namespace cairn {

/// The three computations that a convolution layer needs.
enum class conv_phase { forward, backward_input, backward_weight };

/// Shape of one convolution, channels last. Spatial axes are (depth, height, width); a 2-D convolution has depth 1, a
/// 1-D one depth = height = 1.
struct conv_geometry {
    index_t n = 1;                        ///< images
    std::array<index_t, 3> in{1, 1, 1};   ///< input size (depth, height, width)
    index_t c_in = 1;                     ///< input channels
    std::array<index_t, 3> out{1, 1, 1};  ///< output size, see with_output()
    index_t c_out = 1;                    ///< output channels
    std::array<index_t, 3> kernel{1, 1, 1}, stride{1, 1, 1}, pad{0, 0, 0}, dilation{1, 1, 1};
    index_t groups = 1;

    bool operator==(const conv_geometry&) const = default;

    /// Output size along one axis: (in + 2 pad - dilation (kernel - 1) - 1) / stride + 1; 0 if the kernel does not fit.
    [[nodiscard]] constexpr index_t output_size(std::size_t axis) const {
        const index_t room = in[axis] + 2 * pad[axis] - dilation[axis] * (kernel[axis] - 1) - 1;
        return room < 0 ? 0 : room / stride[axis] + 1;
    }

    /// The same geometry with `out` computed from the rest.
    [[nodiscard]] constexpr conv_geometry with_output() const {
        conv_geometry g = *this;
        for (std::size_t axis = 0; axis < 3; ++axis) g.out[axis] = output_size(axis);
        return g;
    }

    [[nodiscard]] constexpr index_t in_points() const { return in[0] * in[1] * in[2]; }
    [[nodiscard]] constexpr index_t out_points() const { return out[0] * out[1] * out[2]; }
    [[nodiscard]] constexpr index_t kernel_points() const { return kernel[0] * kernel[1] * kernel[2]; }

    [[nodiscard]] constexpr index_t x_elements() const { return n * in_points() * c_in; }
    [[nodiscard]] constexpr index_t y_elements() const { return n * out_points() * c_out; }
    [[nodiscard]] constexpr index_t w_elements() const { return c_out * kernel_points() * (c_in / groups); }

    /// Operations of the direct algorithm in one phase (forward, input gradient or weight gradient), a multiply-add
    /// being two. Border points that meet padding are counted in full, as is customary.
    [[nodiscard]] constexpr double flops() const {
        return 2.0 * static_cast<double>(y_elements()) * static_cast<double>(kernel_points() * (c_in / groups));
    }

    /// One line that names this shape in messages and in the record of chosen algorithms, for example
    /// "n8 in1x32x32x64 out1x32x32x128 k1x3x3 s1x1x1 p0x1x1 d1x1x1 g1".
    [[nodiscard]] std::string to_string() const {
        const auto sizes = [](const std::array<index_t, 3>& a) {
            return std::to_string(a[0]) + 'x' + std::to_string(a[1]) + 'x' + std::to_string(a[2]);
        };
        return 'n' + std::to_string(n) + " in" + sizes(in) + 'x' + std::to_string(c_in) + " out" + sizes(out) + 'x' +
               std::to_string(c_out) + " k" + sizes(kernel) + " s" + sizes(stride) + " p" + sizes(pad) + " d" +
               sizes(dilation) + " g" + std::to_string(groups);
    }
};

/// "forward", "backward_input" or "backward_weight".
inline const char* name_of(conv_phase phase) {
    constexpr const char* names[] = {"forward", "backward_input", "backward_weight"};
    return names[static_cast<std::size_t>(phase)];
}

/// Key of a cached answer or primitive. Compared and hashed byte by byte.
struct conv_call {
    conv_geometry g;
    index_t phase, bytes, variant, threads;
    bool operator==(const conv_call&) const = default;

    struct hash {
        std::size_t operator()(const conv_call& c) const {
            return std::hash<std::string_view>{}({reinterpret_cast<const char*>(&c), sizeof c});
        }
    };
};
static_assert(std::has_unique_object_representations_v<conv_call>);

/// Throws unless the geometry is one of a convolution: positive sizes, groups that divide the channels, and the output
/// size that follows from the rest.
inline void check(const conv_geometry& g) {
    const auto bad = [&](const auto&... why) { fail("convolution ", g.to_string(), ": ", why...); };
    if (g.n < 0 || g.c_in < 1 || g.c_out < 1) bad("images and channels must be positive");
    if (g.groups < 1 || g.c_in % g.groups != 0 || g.c_out % g.groups != 0)
        bad("groups must divide the input and the output channels");
    for (std::size_t axis = 0; axis < 3; ++axis) {
        if (g.in[axis] < 1 || g.kernel[axis] < 1 || g.stride[axis] < 1 || g.dilation[axis] < 1 || g.pad[axis] < 0)
            bad("axis ", axis, ": sizes, kernel, stride and dilation must be at least 1, padding at least 0");
        if (g.out[axis] < 1 || g.out[axis] != g.output_size(axis))
            bad("axis ", axis, ": the output size is ", g.out[axis], ", the rest gives ", g.output_size(axis),
                g.output_size(axis) < 1 ? "; the kernel is larger than the padded input" : "");
    }
}

}  // namespace cairn
