#pragma once
// Rows that a layer in bfloat16 announces to second-order methods (device/curvature_samples.hpp), as floats.

#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/curvature_samples.hpp>

namespace cairn {

/// Float copies of x and dy of the samples, and samples of them. Holds their memory.
struct widened_rows {
    tensor<float> x, dy;
    curvature_samples<float> rows;

    explicit widened_rows(const curvature_samples<bfloat16>& s) {
        const bool images = s.kind == rows_kind::convolution;
        const index_t count = s.examples * s.positions;
        if (s.x) x = widened(images ? s.conv.x_elements() : count * s.in, s.x);
        if (s.dy) dy = widened(images ? s.conv.y_elements() : count * s.out, s.dy);
        rows = {.kind = s.kind,
                .weight = s.weight,
                .bias = s.bias,
                .examples = s.examples,
                .positions = s.positions,
                .in = s.in,
                .out = s.out,
                .x = s.x ? x.data() : nullptr,
                .dy = s.dy ? dy.data() : nullptr,
                .ids = s.ids,
                .conv = s.conv,
                .in_backward = s.in_backward,
                .transposed = s.transposed};
    }
};

}  // namespace cairn
