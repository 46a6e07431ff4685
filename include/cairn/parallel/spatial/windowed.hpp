#pragma once
// Convolution and pooling of tensors whose spatial axes are cut over ranks: the whole layer of nn/ on the rows that its
// results here read.
//   forward          y = layer(x with halo)                   the layer pads only the axes that are not cut
//   backward_input   dx = halo adjoint of layer's dx          the exchange runs while the weight gradient is computed
//   backward_weight  that of the layer, with the halo that forward saved
// Interior and boundaries in calls of their own while halos travel cost more than they hide on one machine: the numbers
// are in course/spatial-parallelism.md.
// Parameters are replicated over the ranks. Their gradients are this rank's share: summed over the ranks they are those
// of the whole layer, as in data parallelism, so gradient_sync over the data and spatial axes together completes them.
// Outside the domain are zeros for a convolution and an average, -inf for a maximum. An average that counts only what
// lies inside is  average(x) / average(ones),  both with zeros outside.
// Tested against the whole layers in tests/parallel/spatial/.

#include <cairn/nn/cast.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/parallel/spatial/halo.hpp>

#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

namespace functors {

/// x /= by, rounded once.
template <class T, class S>
struct divide {
    CAIRN_HD void operator()(T& x, const S& by) const { x = static_cast<T>(x / by); }
};

}  // namespace functors

/// A layer with windows between two cut tensors.
template <class Inner, Communicator C>
class spatial_windowed {
public:
    using value_type = typename Inner::value_type;
    using device = typename Inner::device;
    using T = value_type;
    using D = device;
    using S = weight_of<T>;

    struct edges {
        T outside = T(0);           // what windows find outside the domain
        bool count_inside = false;  // divide by the part of the window that lies inside
    };

    /// `inner` must not pad the axes that are cut.
    spatial_windowed(Inner inner, halo_exchange<C, T, D> halo, std::vector<index_t> out, edges e)
        : inner_(std::move(inner)), halo_(std::move(halo)), out_(std::move(out)), edges_(e) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape in = extended(x.shape());
        tensor<T, D> y = inner_.forward(halo_.forward(std::move(x), edges_.outside), saved, p);
        if (edges_.count_inside) divide_by_inside(y, in);
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = extended_gradient(std::move(dy), saved, p);
        return p.input_gradient ? halo_.backward(std::move(dx), [] {}) : tensor<T, D>{};
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) { inner_.backward_weight(saved, p); }

    /// Both halves; the weight gradient is computed while halos travel.
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (!p.input_gradient) return cairn::backward(inner_, std::move(dy), saved, p);
        tensor<T, D> dx = extended_gradient(std::move(dy), saved, p);
        dx = halo_.backward(std::move(dx), [&] { inner_.backward_weight(saved, p); });
        saved.clear();
        return dx;
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }

    shape output_shape(const shape& in) const { return inner_.output_shape(extended(in)); }

    layer_cost cost(const shape& in) const {
        const shape with_halo = extended(in);
        layer_cost c = inner_.cost(with_halo);
        const auto [there, back] = halo_.cost(in);
        if (edges_.count_inside) {
            const phase_cost inside = inside_cost(with_halo);
            c.backward_input += inside;
            c.forward += inside;
        }
        c.forward += there;
        c.backward_input += back;
        if (with_halo == in) return c;
        if (std::exchange(c.saves_input, false)) c.saved_bytes += block_bytes<T>(with_halo);
        c.weight_gradient_first = c.in_place_forward = c.in_place_backward = false;
        return c;
    }

    std::string describe() const { return inner_.describe(); }

    const halo_exchange<C, T, D>& halo() const { return halo_; }

private:
    shape extended(const shape& in) const { return halo_.extended(in, inner_.describe()); }

    tensor<T, D> extended_gradient(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        for (std::size_t a = 0; a < out_.size(); ++a)
            require(dy.extent(static_cast<int>(a) + 1) == out_[a], describe(), ": dy ", dy.shape(), ", this rank has ",
                    out_[a], " rows of results on axis ", a);
        if (edges_.count_inside) divide_by_inside(dy, saved.get(0).shape());
        return inner_.backward_input(std::move(dy), saved, p);
    }

    // Of the average of ones.
    phase_cost inside_cost(const shape& in) const {
        const phase_cost of_inner = inner_.cost(in).forward;
        return {of_inner.flops, of_inner.bytes * sizeof(S) / sizeof(T)};
    }

    // y /= the part of each window that lies inside the domain, of the whole window. Averages only.
    void divide_by_inside(tensor<T, D>& y, const shape& in) {
        if constexpr (std::same_as<Inner, average_pool<T, D>>) {
            const phase_cost work = inside_cost(in);
            const kernel_call call("average inside", format_name<T>, work.flops, work.bytes, {y.size()});
            tensor<T, D> ones = tensor<T, D>::filled(in, T(1), memory_category::workspace);
            halo_.fill_outside(ones, T(0));
            tensor<S, D> inside(y.shape(), memory_category::workspace);
            average_pool_forward(D{}, inner_.geometry(in), cast<S>(ones).data(), inside.data());
            if (!y.unique()) y = y.clone();
            for_each(functors::divide<T, S>{}, y, inside);
        }
    }

    Inner inner_;
    halo_exchange<C, T, D> halo_;
    std::vector<index_t> out_;  // rows of the results that are here
    edges edges_;
};

template <Communicator C, class T = float, Device D = cpu>
using spatial_conv = spatial_windowed<conv<T, D>, C>;
template <Communicator C, class T = float, Device D = cpu>
using spatial_max_pool = spatial_windowed<max_pool<T, D>, C>;
template <Communicator C, class T = float, Device D = cpu>
using spatial_average_pool = spatial_windowed<average_pool<T, D>, C>;

namespace detail {

/// One window for each of `dims` axes, of a layer's settings.
inline std::vector<axis_window> axis_windows(int dims, const per_axis& kernel, const per_axis& stride,
                                             const per_axis& pad, const per_axis& dilation) {
    const auto k = kernel.expand(dims, 1, "kernel"), s = stride.expand(dims, 1, "stride"),
               p = pad.expand(dims, 0, "pad"), d = dilation.expand(dims, 1, "dilation");
    std::vector<axis_window> all;
    for (auto a = static_cast<std::size_t>(3 - dims); a < 3; ++a)
        all.push_back({.kernel = k[a], .stride = s[a], .pad = p[a], .dilation = d[a]});
    return all;
}

/// `pad` on the axes that are not cut, 0 on the others.
inline per_axis pad_of_whole_axes(const std::vector<axis_window>& windows, const rank_grid& grid) {
    const auto at = [&](int a) { return grid.extent(a) == 1 ? windows[static_cast<std::size_t>(a)].pad : 0; };
    if (grid.dims() == 1) return {at(0)};
    return grid.dims() == 2 ? per_axis{at(0), at(1)} : per_axis{at(0), at(1), at(2)};
}

}  // namespace detail

/// Makes the layers of one rank. The channel must outlive them.
template <Communicator C, class T = float, Device D = cpu>
struct spatial_layers {
    channel<C>* over;
    rank_grid grid;

    /// A convolution of a tensor cut like `in`, whose result is cut like `out`. Throws where that does not fit. `make`
    /// makes the layer of its settings: conv, or one that shares it with further ranks.
    template <class Make>
    auto convolution(typename conv<T, D>::config c, const spatial_partition& in, const spatial_partition& out,
                     Make&& make) const {
        const auto windows = windows_of(c);
        c.pad = detail::pad_of_whole_axes(windows, grid);
        return between(make(c), windows, in, out, {});
    }
    spatial_conv<C, T, D> convolution(const typename conv<T, D>::config& c, const spatial_partition& in,
                                      const spatial_partition& out) const {
        return convolution(c, in, out, [](const auto& settings) { return conv<T, D>(settings); });
    }
    spatial_max_pool<C, T, D> maximum(typename max_pool<T, D>::config c, const spatial_partition& in,
                                      const spatial_partition& out) const {
        const max_pool<T, D> whole(c);  // checks pad against the kernel, which it no longer sees below
        const auto windows = windows_of(c);
        c.pad = detail::pad_of_whole_axes(windows, grid);
        return between(max_pool<T, D>(c), windows, in, out,
                       {.outside = static_cast<T>(-std::numeric_limits<float>::infinity())});
    }
    spatial_average_pool<C, T, D> average(typename average_pool<T, D>::config c, const spatial_partition& in,
                                          const spatial_partition& out) const {
        const average_pool<T, D> whole(c);
        const auto windows = windows_of(c);
        bool padded = false;
        for (const axis_window& w : windows) padded |= w.pad > 0;
        const bool count_inside = padded && !std::exchange(c.count_include_pad, true);
        c.pad = detail::pad_of_whole_axes(windows, grid);
        return between(average_pool<T, D>(c), windows, in, out, {.count_inside = count_inside});
    }

    /// Shards, even to one row, of what a layer with these settings makes of a tensor cut like `in`.
    template <class Config>
    spatial_partition after(const Config& c, const spatial_partition& in, const std::string& layer) const {
        shape extents;
        const auto windows = windows_of(c);
        for (int a = 0; a < grid.dims(); ++a)
            extents.push_back(windows[static_cast<std::size_t>(a)].output_extent(in.extent(a)));
        return spatial_partition::even(grid, extents, layer);
    }

private:
    template <class Config>
    std::vector<axis_window> windows_of(const Config& c) const {
        require(c.dims == grid.dims(), "a layer of ", c.dims, " spatial axes over a rank grid ", grid.text());
        if constexpr (requires { c.dilation; })
            return detail::axis_windows(c.dims, c.kernel, c.stride, c.pad, c.dilation);
        else
            return detail::axis_windows(c.dims, c.kernel, c.stride ? *c.stride : c.kernel, c.pad, 1);
    }

    template <class Inner>
    spatial_windowed<Inner, C> between(Inner inner, const std::vector<axis_window>& windows,
                                       const spatial_partition& in, const spatial_partition& out,
                                       typename spatial_windowed<Inner, C>::edges edges) const {
        check(in, grid);
        check(out, grid);
        std::vector<axis_halo> mine;
        std::vector<index_t> rows;
        for (int a = 0; a < grid.dims(); ++a) {
            const auto at = static_cast<std::size_t>(a);
            const char* const name = spatial_axis_name(a, grid.dims());
            const index_t expected = windows[at].output_extent(in.extent(a));
            require(out.extent(a) == expected, inner.describe(), ": axis ", name, " of ", in.extent(a), " rows gives ",
                    expected, ", the partition of the results has ", out.extent(a));
            const auto all = axis_halos(in.axes[at], out.axes[at], windows[at], inner.describe(), name);
            mine.push_back(all[static_cast<std::size_t>(grid.coordinate(over->rank(), a))]);
            rows.push_back(out.own(grid, over->rank(), a).count);
        }
        return {std::move(inner), halo_exchange<C, T, D>(*over, grid, std::move(mine)), std::move(rows), edges};
    }
};

}  // namespace cairn
