#pragma once
// Rows that a layer in bfloat16 announces to second-order methods (device/curvature_samples.hpp), as floats.

#include <cairn/core/kernel_call.hpp>
#include <cairn/device/cpu/widen.hpp>
#include <cairn/device/curvature_samples.hpp>

namespace cairn {

/// Float copies of x and dy of the samples, and samples of them. Holds their memory.
struct widened_rows {
    tensor<float> x, dy;
    curvature_samples<float> rows;

    explicit widened_rows(const curvature_samples<bfloat16>& s) {
        const bool images = s.kind == rows_kind::convolution;
        const index_t count = s.examples * s.positions, of_x = s.x ? images ? s.conv.x_elements() : count * s.in : 0,
                      of_dy = s.dy ? images ? s.conv.y_elements() : count * s.out : 0;
        const double n = static_cast<double>(of_x + of_dy);
        const kernel_call call("widen rows", "bf16", n, (sizeof(bfloat16) + sizeof(float)) * n, {of_x, of_dy});
        if (s.x) x = widened(of_x, s.x);
        if (s.dy) dy = widened(of_dy, s.dy);
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
