#pragma once
// Rows of normalisation layers for second-order methods: each example's gradients of scale and shift. They cost a pass
// over x and dy, made on request only.

#include <cairn/core/parameter.hpp>
#include <cairn/device/cpu/per_example_gradients.hpp>
#include <cairn/nn/pass_context.hpp>

#include <concepts>

namespace cairn {

/// Arguments of announce_norm(): y = act(scale · x̂ + shift) and its gradient.
template <class T, class S, Device D>
struct norm_rows {
    normalised_by by = normalised_by::channel;
    index_t channels = 0;
    const tensor<T, D>& x;               // (examples, …, channels)
    const tensor<T, D>& dy;              // of the same shape
    const S *mean, *invstd;              // of each channel or of each row
    const std::uint8_t* bits = nullptr;  // of the activation, null without one
    activation act = activation::none;
    S slope{};
};

namespace detail {

/// dy behind the activation; of rows that are normalised, each times 1 / deviation.
template <class T, class S, Device D>
void announce_norm_output(curvature_listener& to, int scale, const norm_rows<T, S, D>& of) {
    tensor<T, D> dy(of.dy.shape(), memory_category::workspace);
    const index_t rows = of.dy.size() / of.channels;
    const S slope = of.act == activation::leaky_relu ? of.slope : S{};
    norm_output_gradient(D{}, rows, of.channels, of.by, of.dy.data(), of.bits, slope, of.invstd, dy.data());
    to.take(curvature_samples<T>{.kind = rows_kind::norm_output,
                                 .weight = scale,
                                 .examples = rows,
                                 .in = 1,
                                 .out = of.channels,
                                 .dy = dy.data(),
                                 .in_backward = true});
}

}  // namespace detail

/// Announces each example's gradients of scale and shift if the listener wants them.
template <class T, class S, Device D>
void announce_norm(curvature_listener* to, const layer_parameter<T, D>& scale, const layer_parameter<T, D>& shift,
                   const norm_rows<T, S, D>& of) {
    if constexpr (std::floating_point<T>)
        if (to && scale.id >= 0 && to->wants(scale.id, rows_kind::norm_output))
            detail::announce_norm_output(*to, scale.id, of);
    const index_t examples = of.x.rank() > 1 ? of.x.extent(0) : 1;
    if (examples == 0 || !to || scale.id < 0 || !to->wants(scale.id, rows_kind::norm)) return;
    const shape each{examples, of.channels};
    tensor<S, D> of_scale(each, memory_category::workspace), of_shift(each, memory_category::workspace);
    per_example_gradients(D{}, examples, of.x.size() / (examples * of.channels), of.channels, of.by, of.dy.data(),
                          of.x.data(), of.bits, of.act, of.slope, of.mean, of.invstd, of_scale.data(), of_shift.data());
    announce(to, curvature_samples<S>{.kind = rows_kind::norm,
                                      .weight = scale.id,
                                      .bias = shift.id,
                                      .examples = examples,
                                      .in = of.channels,
                                      .out = of.channels,
                                      .x = of_scale.data(),
                                      .dy = of_shift.data(),
                                      .in_backward = true});
}

}  // namespace cairn
