#pragma once
// Graphs of convolutions for cuDNN (cudnn.hpp). Forward may have its bias in the graph: its sums then do not leave the
// chip before the bias is added.

#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cuda/cudnn.hpp>

#include <array>
#include <cstdint>
#include <type_traits>
#include <vector>

namespace cairn::cudnn {

/// Sizes of a channels-last tensor in cuDNN's order (N, C, spatial…), and how far apart neighbours lie.
struct layout {
    std::vector<std::int64_t> sizes, steps;

    layout(index_t n, index_t channels, const std::array<index_t, 3>& points, std::size_t first_axis) {
        sizes = {n, channels};
        for (std::size_t a = first_axis; a < 3; ++a) sizes.push_back(points[a]);
        steps.assign(sizes.size(), 1);
        std::int64_t step = channels;
        for (std::size_t a = sizes.size() - 1; a >= 2; --a) {
            steps[a] = step;
            step *= sizes[a];
        }
        steps[0] = step;
    }
};

template <class T>
descriptor tensor_descriptor(tensor_id id, const layout& l) {
    return describe_tensor(id, data_type<T>(), l.sizes, l.steps,
                           id == id_sums ? tensor_place::chip : tensor_place::memory);
}

/// The first axis of a convolution that cuDNN is told of: images have no depth.
inline std::size_t first_axis(const conv_geometry& g) {
    return g.in[0] == 1 && g.out[0] == 1 && g.kernel[0] == 1 && g.pad[0] == 0 ? 1 : 0;
}

/// Strides, paddings and dilations of a convolution, and that it adds up in float, or double in double.
template <class T>
descriptor convolution_descriptor(const conv_geometry& g) {
    const std::size_t axis = first_axis(g);
    const auto spatial = [axis](const std::array<index_t, 3>& v) {
        return std::vector<std::int64_t>(v.begin() + static_cast<std::ptrdiff_t>(axis), v.end());
    };
    descriptor convolution(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const auto sums = std::is_same_v<T, double> ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const std::int64_t axes = static_cast<std::int64_t>(3 - axis);
    convolution.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, sums)
        .set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, CUDNN_CROSS_CORRELATION)
        .set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial(g.dilation))
        .set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial(g.stride))
        .set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial(g.pad))
        .set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial(g.pad))
        .set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, axes);
    return convolution.finalise("describing a convolution");
}

/// A graph of one convolution in one phase; of forward with `bias`, y = sums + bias. h: null before there is a GPU.
template <class T>
descriptor convolution_graph(conv_phase phase, const conv_geometry& g, bool bias = false, cudnnHandle_t h = handle()) {
    const std::size_t axis = first_axis(g);
    const descriptor x = tensor_descriptor<T>(id_x, layout(g.n, g.c_in, g.in, axis)),
                     w = tensor_descriptor<T>(id_w, layout(g.c_out, g.c_in / g.groups, g.kernel, axis)),
                     y = tensor_descriptor<T>(id_y, layout(g.n, g.c_out, g.out, axis));
    using number = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const descriptor result = bias ? tensor_descriptor<number>(id_sums, layout(g.n, g.c_out, g.out, axis)) : y;
    const descriptor convolution = convolution_descriptor<T>(g);
    const auto sums = std::is_same_v<T, double> ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    const auto number_type = std::is_same_v<T, double> ? CUDNN_TYPE_DOUBLE : CUDNN_TYPE_FLOAT;
    const number one = 1, zero = 0;
    const auto operation = [&](cudnnBackendDescriptorType_t type, auto alpha, auto beta, auto of, auto xs, auto ws,
                               auto ys) {
        descriptor o(type);
        o.set(alpha, number_type, one)
            .set(beta, number_type, zero)
            .set(of, convolution)
            .set(xs, x)
            .set(ws, w)
            .set(ys, result);
        return o.finalise("describing an operation");
    };
    const descriptor o =
        phase == conv_phase::forward
            ? operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y)
        : phase == conv_phase::backward_input
            ? operation(CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                        CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY)
            : operation(
                  CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                  CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
    if (!bias) return graph_of({&o, 1}, h);
    const descriptor b = tensor_descriptor<T>(id_bias, layout(1, g.c_out, {1, 1, 1}, axis));
    descriptor addition(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), then(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const cudnnPointwiseMode_t add = CUDNN_POINTWISE_ADD;
    addition.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, add)
        .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, sums)
        .finalise("describing an addition");
    then.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, addition)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, result)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b)
        .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
        .finalise("describing the bias");
    const std::array<descriptor, 2> operations{o, then};
    return graph_of(operations, h);
}

}  // namespace cairn::cudnn
