#pragma once
// Elements of a convolution's patches on a grid device. A patch is the input under one output point's window.

#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/grid/grid.hpp>

#include <array>
#include <cstddef>

namespace cairn::grid {

/// The three coordinates of a point of `sizes`, counted row by row.
struct grid_point {
    index_t at[3];
    CAIRN_HD grid_point(const std::array<index_t, 3>& sizes, index_t point) {
        const index_t row = quotient(point, sizes[2]);
        at[2] = point - row * sizes[2];
        at[0] = quotient(row, sizes[1]);
        at[1] = row - at[0] * sizes[1];
    }
};

/// The channels of x (n, in…, c_in) that output point `row`, counted over all images, sees at `tap`; null: padding.
template <class T>
CAIRN_HD const T* patch_at(const conv_geometry& g, const T* x, index_t row, index_t tap) {
    index_t at = quotient(row, g.out_points());
    const grid_point point(g.out, row - at * g.out_points()), taps(g.kernel, tap);
    for (std::size_t axis = 0; axis < 3; ++axis) {
        const index_t where = point.at[axis] * g.stride[axis] + taps.at[axis] * g.dilation[axis] - g.pad[axis];
        if (where < 0 || where >= g.in[axis]) return nullptr;
        at = at * g.in[axis] + where;
    }
    return x + at * g.c_in;
}
template <class T>
CAIRN_HD T patch_element(const conv_geometry& g, const T* x, index_t row, index_t tap, index_t channel) {
    const T* const from = patch_at(g, x, row, tap);
    return from ? from[channel] : T{};
}

}  // namespace cairn::grid
