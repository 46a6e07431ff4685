#pragma once
// cuDNN's graphs of a convolution that also gives, for each channel, the totals of its result and of that squared, as
// sums leave the tensor cores: what a batch norm behind it wants, without a pass over the result. For bfloat16 and
// float16; totals are float.
//   of_result   y = conv(x, w); totals of y                  engines made for this pattern
//   of_sums     s = conv(x, w); totals of s; y = s rounded   engines compiled for the graph; s is on the chip alone
// Asked without a GPU, cuDNN 9.19 has engines for both, in both types, for all shapes of ResNet-50 and CosmoFlow, on an
// H100 and an A100 (tests/device/cuda/cudnn_accepts.cpp). The graphs run on an interpreter in tests/cudnn.

#include <cairn/device/cuda/cudnn.hpp>

namespace cairn::cudnn {

enum class totals_form { of_result, of_sums };

/// h: null where no GPU is there yet.
template <class T>
descriptor convolution_totals_graph(totals_form form, const conv_geometry& g, cudnnHandle_t h = handle()) {
    static_assert(sizeof(T) == 2, "float has too few digits for unshifted sums of squares of float");
    const std::size_t axis = first_axis(g);
    const layout y_layout(g.n, g.c_out, g.out, axis), per_channel(1, g.c_out, {1, 1, 1}, axis);
    const descriptor x = tensor_descriptor<T>(id_x, layout(g.n, g.c_in, g.in, axis)),
                     w = tensor_descriptor<T>(id_w, layout(g.c_out, g.c_in / g.groups, g.kernel, axis)),
                     y = tensor_descriptor<T>(id_y, y_layout), total = tensor_descriptor<float>(id_total, per_channel),
                     square_total = tensor_descriptor<float>(id_square_total, per_channel);
    const descriptor result = form == totals_form::of_sums ? tensor_descriptor<float>(id_sums, y_layout) : y;

    const float one = 1, zero = 0;
    std::vector<descriptor> operations(2, descriptor(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR));
    operations[0]
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, one)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, zero)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, convolution_descriptor<T>(g))
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w)
        .set(CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, result)
        .finalise("describing a convolution before totals");

    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t in_float = CUDNN_DATA_FLOAT;
    operations[1] = descriptor(CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR);
    operations[1]
        .set(CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, mode)
        .set(CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, in_float)
        .set(CUDNN_ATTR_OPERATION_GENSTATS_XDESC, result)
        .set(CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, total)
        .set(CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, square_total)
        .finalise("describing totals");

    if (form == totals_form::of_sums) {
        descriptor rounding(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
        const cudnnPointwiseMode_t same = CUDNN_POINTWISE_IDENTITY;
        rounding.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, same)
            .set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, in_float)
            .finalise("describing a rounding");
        operations.emplace_back(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, rounding)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, result)
            .set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y)
            .finalise("describing the result");
    }
    return graph_of(operations, h);
}

}  // namespace cairn::cudnn
