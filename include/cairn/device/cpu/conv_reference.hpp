#pragma once
// Convolution by plain loops over channels-last tensors: any type, any shape. The last resort, and the algorithm to
// read first.
//
//   y[n, o, k] = b[k] + Σ_{t, c} x[n, o · stride + t · dilation − pad, c] · w[k, t, c]
//
// Each sum is made by one thread, in one order: the same bits on any number of threads.

#include <cairn/core/parallel.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <type_traits>

namespace cairn::plain {

/// Calls visit(tap, output point) for each kernel tap of image `image` that joins input point (d, h, w) to an output
/// point.
template <class Visit>
void for_each_output(const conv_geometry& g, index_t image, const std::array<index_t, 3>& point, Visit visit) {
    index_t tap = 0;
    std::array<index_t, 3> k;
    for (k[0] = 0; k[0] < g.kernel[0]; ++k[0])
        for (k[1] = 0; k[1] < g.kernel[1]; ++k[1])
            for (k[2] = 0; k[2] < g.kernel[2]; ++k[2], ++tap) {
                index_t at = image;
                bool inside = true;
                for (std::size_t axis = 0; axis < 3; ++axis) {
                    const index_t scaled = point[axis] + g.pad[axis] - k[axis] * g.dilation[axis];
                    const index_t o = scaled / g.stride[axis];
                    inside = inside && scaled >= 0 && o * g.stride[axis] == scaled && o < g.out[axis];
                    at = at * g.out[axis] + o;
                }
                if (inside) visit(tap, at);
            }
}

/// Calls visit(tap, input point) for each kernel tap of image `image` that output point (d, h, w) reads inside the
/// input.
template <class Visit>
void for_each_input(const conv_geometry& g, index_t image, const std::array<index_t, 3>& point, Visit visit) {
    index_t tap = 0;
    std::array<index_t, 3> k;
    for (k[0] = 0; k[0] < g.kernel[0]; ++k[0])
        for (k[1] = 0; k[1] < g.kernel[1]; ++k[1])
            for (k[2] = 0; k[2] < g.kernel[2]; ++k[2], ++tap) {
                index_t at = image;
                bool inside = true;
                for (std::size_t axis = 0; axis < 3; ++axis) {
                    const index_t i = point[axis] * g.stride[axis] + k[axis] * g.dilation[axis] - g.pad[axis];
                    inside = inside && i >= 0 && i < g.in[axis];
                    at = at * g.in[axis] + i;
                }
                if (inside) visit(tap, at);
            }
}

/// Calls body(image, point, position) for all points of images of `size`, in parallel; position counts them.
template <class Body>
void for_each_point(index_t images, const std::array<index_t, 3>& size, Body body) {
    const index_t points = size[0] * size[1] * size[2];
    parallel_for(images * points, 64, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            body(i / points,
                 std::array<index_t, 3>{i / (size[1] * size[2]) % size[0], i / size[2] % size[1], i % size[2]}, i);
    });
}

/// y = x * w + bias; bias may be null.
template <class T>
void forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, taps = g.kernel_points();
    for_each_point(g.n, g.out, [&](index_t image, const auto& point, index_t o) {
        for (index_t k = 0; k < g.c_out; ++k) y[o * g.c_out + k] = bias ? bias[k] : T{};
        for_each_input(g, image, point, [&](index_t tap, index_t i) {
            for (index_t k = 0; k < g.c_out; ++k)
                for (index_t c = 0; c < ci; ++c)
                    y[o * g.c_out + k] += x[i * g.c_in + k / co * ci + c] * w[(k * taps + tap) * ci + c];
        });
    });
}

/// dx = gradient of <dy, x * w> with respect to x.
template <class T>
void backward_input(const conv_geometry& g, const T* dy, const T* w, T* dx) {
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, taps = g.kernel_points();
    for_each_point(g.n, g.in, [&](index_t image, const auto& point, index_t i) {
        for (index_t c = 0; c < g.c_in; ++c) dx[i * g.c_in + c] = T{};
        for_each_output(g, image, point, [&](index_t tap, index_t o) {
            for (index_t k = 0; k < g.c_out; ++k)
                for (index_t c = 0; c < ci; ++c)
                    dx[i * g.c_in + k / co * ci + c] += dy[o * g.c_out + k] * w[(k * taps + tap) * ci + c];
        });
    });
}

/// dw += gradient of <dy, x * w> with respect to w.
template <class T>
void backward_weight(const conv_geometry& g, const T* x, const T* dy, T* dw) {
    const index_t ci = g.c_in / g.groups, co = g.c_out / g.groups, taps = g.kernel_points();
    parallel_for(g.c_out, 1, [&](index_t first, index_t last) {
        for (index_t o = 0; o < g.n * g.out_points(); ++o) {
            const std::array<index_t, 3> point{o / (g.out[1] * g.out[2]) % g.out[0], o / g.out[2] % g.out[1],
                                               o % g.out[2]};
            for_each_input(g, o / g.out_points(), point, [&](index_t tap, index_t i) {
                for (index_t k = first; k < last; ++k)
                    for (index_t c = 0; c < ci; ++c)
                        dw[(k * taps + tap) * ci + c] += dy[o * g.c_out + k] * x[i * g.c_in + k / co * ci + c];
            });
        }
    });
}

}  // namespace cairn::plain
