#pragma once
// Pooling layers over one to three spatial axes, channels last (kernels and formulas: device/cpu/pool.hpp).
//   max_pool               saved: one byte a result (four if a window has more than 256 elements)
//   average_pool, adaptive_average_pool, global_average_pool    saved: nothing, backward is linear and knows the shape

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/pool.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/per_axis.hpp>

#include <optional>

namespace cairn {

namespace detail {

/// "(N, H, W, C)" of `dims` spatial axes.
inline const char* spatial_shape(int dims) {
    constexpr const char* text[]{"(N, W, C)", "(N, H, W, C)", "(N, D, H, W, C)"};
    return text[dims - 1];
}

/// Geometry of `in` with the windows that axis(a, extent) makes of axis a of (depth, height, width).
template <class Axis>
pool_geometry pool_geometry_of(const shape& in, int dims, Axis&& axis) {
    pool_geometry g;
    g.n = in[0];
    g.channels = in.back();
    for (int a = 0; a < 3; ++a) {
        const bool present = a >= 3 - dims;
        g.axis[static_cast<std::size_t>(a)] =
            present ? axis(static_cast<std::size_t>(a), in[a - (3 - dims) + 1]) : pool_axis::sliding(1, 1, 1, 0);
    }
    return g;
}

inline shape pooled_shape(const pool_geometry& g, int dims) {
    shape out{g.n};
    for (int a = 3 - dims; a < 3; ++a) out.push_back(g.axis[static_cast<std::size_t>(a)].out);
    out.push_back(g.channels);
    return out;
}

/// Kernel, stride and pad of sliding windows, checked.
struct sliding_windows {
    int dims;
    std::array<index_t, 3> kernel, stride, pad;

    sliding_windows(const char* name, int d, const per_axis& k, const std::optional<per_axis>& s, const per_axis& p)
        : dims(d) {
        require(dims >= 1 && dims <= 3, name, ": ", dims, " spatial axes; 1, 2 or 3 are possible");
        kernel = k.expand(dims, 1, "pool: kernel");
        stride = s ? s->expand(dims, 1, "pool: stride") : kernel;
        pad = p.expand(dims, 0, "pool: pad");
        for (std::size_t a = 0; a < 3; ++a)
            require(kernel[a] > 0 && stride[a] > 0 && pad[a] >= 0 && 2 * pad[a] <= kernel[a], name, ' ',
                    axes_text(kernel, dims), ": kernel and stride must be positive, pad at most half the kernel");
    }

    pool_geometry geometry(const std::string& layer, const shape& in) const {
        require(in.rank() == dims + 2, layer, " takes ", spatial_shape(dims), ", got ", in);
        pool_geometry g = pool_geometry_of(in, dims, [&](std::size_t a, index_t extent) {
            return pool_axis::sliding(extent, kernel[a], stride[a], pad[a]);
        });
        require(g.out_points() > 0, layer, " takes ", spatial_shape(dims),
                " with images no smaller than its kernel, got ", in);
        return g;
    }

    std::string describe(const char* name) const {
        return concat(name, ' ', axes_text(kernel, dims), " stride ", axes_text(stride, dims));
    }
};

}  // namespace detail

/// Maximum over sliding windows.
template <class T = float, Device D = cpu>
class max_pool : public layer_without_parameters<T, D> {
public:
    struct config {
        per_axis kernel = 2;
        std::optional<per_axis> stride = std::nullopt;  // the kernel's extents unless given
        per_axis pad = 0;                               // positions outside the input are never the maximum
        int dims = 2;
    };

    explicit max_pool(config c) : windows_("max_pool", c.dims, c.kernel, c.stride, c.pad) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const pool_geometry g = geometry(x.shape());
        const shape out = detail::pooled_shape(g, windows_.dims);
        tensor<T, D> y(out);
        if (!p.training()) {
            max_pool_forward(D{}, g, x.data(), y.data(), static_cast<std::uint8_t*>(nullptr));
            return y;
        }
        saved.put(shape_slot, tensor<T, D>::view(nullptr, x.shape()));
        if (g.window() <= 256)
            forward_with<std::uint8_t>(g, x, y, saved);
        else
            forward_with<std::int32_t>(g, x, y, saved);
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = saved.take(shape_slot).shape();
        const pool_geometry g = geometry(in);
        require_shape(dy, detail::pooled_shape(g, windows_.dims), "max_pool: dy");
        return g.window() <= 256 ? backward_with<std::uint8_t>(g, in, dy, saved, p)
                                 : backward_with<std::int32_t>(g, in, dy, saved, p);
    }

    shape output_shape(const shape& in) const { return detail::pooled_shape(geometry(in), windows_.dims); }

    layer_cost cost(const shape& in) const {
        const pool_geometry g = geometry(in);
        const index_t code = g.window() <= 256 ? 1 : 4;
        const double x = double(g.x_elements()), y = double(g.y_elements()), size = sizeof(T);
        const double reads = double(g.n * g.reads() * g.channels), bytes = size * x + (size + double(code)) * y;
        layer_cost c;
        c.forward = c.backward_input = {reads, bytes};
        c.saved_bytes = block_bytes(code * g.y_elements());
        return c;
    }

    std::string describe() const { return windows_.describe("max_pool"); }

private:
    enum slot { shape_slot, code_slot };

    pool_geometry geometry(const shape& in) const { return windows_.geometry(describe(), in); }

    template <class Code>
    static void forward_with(const pool_geometry& g, const tensor<T, D>& x, tensor<T, D>& y,
                             saved_tensors<T, D>& saved) {
        tensor<Code, D> code(y.shape());
        max_pool_forward(D{}, g, x.data(), y.data(), code.data());
        saved.put(code_slot, std::move(code));
    }

    template <class Code>
    static tensor<T, D> backward_with(const pool_geometry& g, const shape& in, const tensor<T, D>& dy,
                                      saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<Code, D> code = saved.template take<Code>(code_slot);
        if (!p.input_gradient) return {};
        tensor<T, D> dx(in);
        max_pool_backward(D{}, g, dy.data(), code.data(), dx.data());
        return dx;
    }

    detail::sliding_windows windows_;
};

namespace detail {

/// Common part of the averaging layers: Derived has geometry(in).
template <class Derived, class T, Device D>
class averaging : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const pool_geometry g = self().geometry(x.shape());
        tensor<T, D> y(pooled_shape(g, self().dims()));
        average_pool_forward(D{}, g, x.data(), y.data());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = saved.take(0).shape();
        if (!p.input_gradient) return {};
        const pool_geometry g = self().geometry(in);
        require_shape(dy, pooled_shape(g, self().dims()), "average pool: dy");
        tensor<T, D> dx(in);
        average_pool_backward(D{}, g, dy.data(), dx.data());
        return dx;
    }

    shape output_shape(const shape& in) const { return pooled_shape(self().geometry(in), self().dims()); }

    layer_cost cost(const shape& in) const {
        const pool_geometry g = self().geometry(in);
        const double x = double(g.x_elements()), y = double(g.y_elements()), size = sizeof(T);
        const double reads = double(g.n * g.reads() * g.channels);
        layer_cost c;
        c.forward = {reads + y, size * (x + y)};
        c.backward_input = {2 * reads, size * (x + y)};
        return c;
    }

private:
    const Derived& self() const { return static_cast<const Derived&>(*this); }
};

}  // namespace detail

/// Mean over sliding windows.
template <class T = float, Device D = cpu>
class average_pool : public detail::averaging<average_pool<T, D>, T, D> {
public:
    struct config {
        per_axis kernel = 2;
        std::optional<per_axis> stride = std::nullopt;  // the kernel's extents unless given
        per_axis pad = 0;
        bool count_include_pad = true;  // padding counts as zeros; false: divide by what lies inside the input
        int dims = 2;
    };

    explicit average_pool(config c)
        : windows_("average_pool", c.dims, c.kernel, c.stride, c.pad), count_pad_(c.count_include_pad) {}

    std::string describe() const { return windows_.describe("average_pool"); }
    int dims() const { return windows_.dims; }
    pool_geometry geometry(const shape& in) const {
        pool_geometry g = windows_.geometry(describe(), in);
        g.count_pad = count_pad_;
        return g;
    }

private:
    detail::sliding_windows windows_;
    bool count_pad_;
};

/// Mean over a fixed number of windows, for inputs of any size.
template <class T = float, Device D = cpu>
class adaptive_average_pool : public detail::averaging<adaptive_average_pool<T, D>, T, D> {
public:
    struct config {
        per_axis out = 1;
        int dims = 2;
    };

    explicit adaptive_average_pool(config c) : dims_(c.dims) {
        require(dims_ >= 1 && dims_ <= 3, "adaptive_average_pool: ", dims_, " spatial axes; 1, 2 or 3 are possible");
        out_ = c.out.expand(dims_, 1, "adaptive_average_pool: out");
        for (index_t o : out_) require(o > 0, "adaptive_average_pool: out must be positive");
    }

    std::string describe() const { return concat("adaptive_average_pool ", axes_text(out_, dims_)); }
    int dims() const { return dims_; }
    pool_geometry geometry(const shape& in) const {
        require(in.rank() == dims_ + 2 && in.with(0, 1).size() > 0, describe(), " takes ", detail::spatial_shape(dims_),
                ", got ", in);
        pool_geometry g = detail::pool_geometry_of(
            in, dims_, [&](std::size_t a, index_t extent) { return pool_axis::adaptive(extent, out_[a]); });
        g.count_pad = false;
        return g;
    }

private:
    int dims_;
    std::array<index_t, 3> out_;
};

/// Mean over all spatial positions: (N, …, C) → (N, C).
template <class T = float, Device D = cpu>
class global_average_pool : public layer_without_parameters<T, D> {
public:
    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape out = output_shape(x.shape());
        tensor<T, D> y(out);
        global_average_forward(D{}, out[0], x.size() / std::max<index_t>(y.size(), 1), out[1], x.data(), y.data());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the shape alone
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = saved.take(0).shape(), out = output_shape(in);
        require_shape(dy, out, "global_average_pool: dy");
        if (!p.input_gradient) return {};
        tensor<T, D> dx(in);
        global_average_backward(D{}, out[0], dx.size() / std::max<index_t>(dy.size(), 1), out[1], dy.data(), dx.data());
        return dx;
    }

    shape output_shape(const shape& in) const {
        require(in.rank() >= 3, "global_average_pool takes (N, ..., C) with at least one spatial axis, got ", in);
        return {in[0], in.back()};
    }

    layer_cost cost(const shape& in) const {
        const double x = double(in.size()), y = double(output_shape(in).size()), size = sizeof(T);
        layer_cost c;
        c.forward = {x + y, size * (x + y)};
        c.backward_input = {x, size * (x + y)};
        return c;
    }

    std::string describe() const { return "global_average_pool"; }
};

CAIRN_COMPILED_CLASS(max_pool)
CAIRN_COMPILED_CLASS(average_pool)
CAIRN_COMPILED_CLASS(adaptive_average_pool)
CAIRN_COMPILED_CLASS(global_average_pool)

}  // namespace cairn
