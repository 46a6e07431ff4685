#pragma once
// Layers that make a grid larger, over one to three spatial axes, channels last (device/resample.hpp).
//   circular_pad      of periodic axes, such as longitude, and zeros at the ends of the others: in front of a
//                     convolution without padding
//   linear_upsample   twice as many points along each axis, by (bi-, tri-) linear interpolation, as PyTorch's with
//                     align_corners = false; before a convolution in place of a transposed one (Odena et al. 2016)
// Saved: nothing, backward is linear and knows the shape.

#include <cairn/core/compiled.hpp>
#include <cairn/device/resample.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/pool.hpp>

#include <array>
#include <string>

namespace cairn {

namespace detail {

/// Common part: Derived has dims(), channels() (0: any), and axis(a, extent), a resampled_axis of axis a of its own.
template <class Derived, class T, Device D>
class resampling_layer : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const resample_geometry g = geometry(x.shape());
        tensor<T, D> y(shape_of(g, &resampled_axis::out));
        resample<false>(D{}, g, x.data(), y.data());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = saved.take(0).shape();
        if (!p.input_gradient) return {};
        const resample_geometry g = geometry(in);
        require_shape(dy, shape_of(g, &resampled_axis::out), "resample: dy");
        tensor<T, D> dx(in);
        resample<true>(D{}, g, dy.data(), dx.data());
        return dx;
    }

    shape output_shape(const shape& in) const { return shape_of(geometry(in), &resampled_axis::out); }

    layer_cost cost(const shape& in) const {
        const resample_geometry g = geometry(in);
        const double x = double(in.size()), y = double(g.n * g.points_out() * g.channels);
        layer_cost c;
        c.forward = c.backward_input = {2 * g.products() * y, sizeof(T) * (x + y)};
        return c;
    }

private:
    resample_geometry geometry(const shape& in) const {
        const Derived& self = static_cast<const Derived&>(*this);
        const int dims = self.dims();
        require(in.rank() == dims + 2 && in.with(0, 1).size() > 0, self.describe(), " takes ", spatial_shape(dims),
                ", got ", in);
        require(self.channels() == 0 || self.channels() == in.back(), self.describe(), " takes ", spatial_shape(dims),
                " of ", self.channels(), " channels, got ", in);
        resample_geometry g{.n = in[0], .channels = in.back(), .axis = {}};
        for (int a = 0; a < dims; ++a) g.axis[static_cast<std::size_t>(3 - dims + a)] = self.axis(a, in[a + 1]);
        return g;
    }
    shape shape_of(const resample_geometry& g, index_t resampled_axis::*extent) const {
        shape s{g.n};
        for (int a = 3 - static_cast<const Derived&>(*this).dims(); a < 3; ++a)
            s.push_back(g.axis[static_cast<std::size_t>(a)].*extent);
        s.push_back(g.channels);
        return s;
    }
};

}  // namespace detail

/// Which axes of a grid are periodic, the first one first.
using periodic_axes = std::array<bool, 3>;

/// Pads periodic axes at both ends with what lies at the other end, the others with zeros.
template <class T = float, Device D = cpu>
class circular_pad : public detail::resampling_layer<circular_pad<T, D>, T, D> {
public:
    struct config {
        index_t pad = 1;
        periodic_axes periodic{};
        int dims = 2;
        index_t channels = 0;  // that it takes; 0: any number
    };

    explicit circular_pad(config c) : config_(c) {
        require(c.dims >= 1 && c.dims <= 3 && c.pad > 0, "circular_pad ", c.pad, ": ", c.dims,
                " spatial axes; 1 to 3 axes are possible, and at least one element");
    }

    std::string describe() const { return concat("circular_pad ", config_.pad); }
    int dims() const { return config_.dims; }
    index_t channels() const { return config_.channels; }
    resampled_axis axis(int a, index_t extent) const {
        const bool circular = config_.periodic[static_cast<std::size_t>(a)];
        require(!circular || config_.pad <= extent, describe(), ": an axis of ", extent,
                " elements is shorter than its padding");
        return {circular ? resampling::circular : resampling::zeros, extent, extent + 2 * config_.pad, config_.pad};
    }

private:
    config config_;
};

/// Twice the points along each axis.
template <class T = float, Device D = cpu>
class linear_upsample : public detail::resampling_layer<linear_upsample<T, D>, T, D> {
public:
    struct config {
        periodic_axes periodic{};
        int dims = 2;
    };

    explicit linear_upsample(config c) : config_(c) {
        require(c.dims >= 1 && c.dims <= 3, "linear_upsample: ", c.dims, " spatial axes; 1, 2 or 3 are possible");
    }

    std::string describe() const { return "linear_upsample"; }
    int dims() const { return config_.dims; }
    index_t channels() const { return 0; }
    resampled_axis axis(int a, index_t extent) const {
        return {resampling::linear, extent, 2 * extent, 0, config_.periodic[static_cast<std::size_t>(a)]};
    }

private:
    config config_;
};

CAIRN_COMPILED_CLASS(circular_pad)
CAIRN_COMPILED_CLASS(linear_upsample)

}  // namespace cairn
