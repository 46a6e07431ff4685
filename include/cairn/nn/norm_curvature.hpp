#pragma once
// How normalisations announce themselves to second-order methods: their rows are each example's gradients of scale and
// shift, which cost a pass over x and dy that is made only on request.

#include <cairn/core/parameter.hpp>
#include <cairn/device/cpu/per_example_gradients.hpp>
#include <cairn/nn/pass_context.hpp>

namespace cairn {

/// What announce_norm() is told of y = act(scale · x̂ + shift) and of its gradient.
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

/// Announces each example's gradients of scale and shift where the listener wants them. Nothing on the host for fewer
/// digits than float.
template <class T, class S, Device D>
void announce_norm(curvature_listener* to, const layer_parameter<T, D>& scale, const layer_parameter<T, D>& shift,
                   const norm_rows<T, S, D>& of) {
    if constexpr (std::floating_point<T> || !std::same_as<D, cpu>) {
        const index_t examples = of.x.rank() > 1 ? of.x.extent(0) : 1;
        if (examples == 0 || !to || !to->wants(scale.id, rows_kind::norm)) return;
        const shape each{examples, of.channels};
        tensor<S, D> of_scale(each, memory_category::workspace), of_shift(each, memory_category::workspace);
        per_example_gradients(D{}, examples, of.x.size() / (examples * of.channels), of.channels, of.by, of.dy.data(),
                              of.x.data(), of.bits, of.act, of.slope, of.mean, of.invstd, of_scale.data(),
                              of_shift.data());
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
}

}  // namespace cairn
