#pragma once
// Each example's gradient of scale and shift of y = act(scale · x̂ + shift), x̂ = (x − mean) invstd, on a grid device:
// of which second-order methods make curvature. The sums of the batch alone, for the step itself: batch_norm.hpp,
// layer_norm.hpp.
// Memory traffic: x, dy (bits).

#include <cairn/device/activation_kind.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

/// scale, shift (examples, channels): one thread each, whose neighbours read neighbouring channels.
template <class T, class S>
struct per_example_gradients_kernel {
    index_t rows, channels;  // rows of each example
    normalised_by by;
    const T *dy, *x;
    const std::uint8_t* bits;  // null: no activation
    S slope;
    const S *mean, *invstd;
    S *scale, *shift;

    CAIRN_HD void operator()(index_t i) const {
        const index_t example = quotient(i, channels), channel = i - example * channels;
        S sum_scale{}, sum_shift{};
        for (index_t row = example * rows; row < (example + 1) * rows; ++row) {
            const index_t at = row * channels + channel, k = by == normalised_by::row ? row : channel;
            const auto arrived = static_cast<S>(dy[at]);
            const bool on = !bits || (bits[at / 8] >> (at % 8) & 1) != 0;
            const S g = on ? arrived : leaked(slope, arrived);
            sum_scale += g * (static_cast<S>(x[at]) - mean[k]) * invstd[k];
            sum_shift += g;
        }
        scale[i] = sum_scale, shift[i] = sum_shift;
    }
};

/// out[i] = dy[i] behind the activation, times 1 / deviation of its row.
template <class T, class S>
struct norm_output_kernel {
    index_t channels;
    normalised_by by;
    const T* dy;
    const std::uint8_t* bits;  // null: no activation
    S slope;
    const S* invstd;
    T* out;

    CAIRN_HD void operator()(index_t i) const {
        const S arrived = static_cast<S>(dy[i]), size = by == normalised_by::row ? invstd[quotient(i, channels)] : S(1);
        const bool on = !bits || (bits[i / 8] >> (i % 8) & 1) != 0;
        out[i] = static_cast<T>((on ? arrived : leaked(slope, arrived)) * size);
    }
};

}  // namespace grid

/// scale, shift (examples, channels) from dy, x (examples · rows, channels) and the bits of forward, null without
/// activation.
template <class T, class S, GridDevice D>
void per_example_gradients(D d, index_t examples, index_t rows, index_t channels, normalised_by by, const T* dy,
                           const T* x, const std::uint8_t* bits, activation act, S slope, const S* mean,
                           const S* invstd, S* scale, S* shift) {
    const index_t n = examples * channels;
    if (n == 0) return;
    flop_counter::count(5.0 * double(n * rows), 2.0 * double(n * rows) * sizeof(T) + 2.0 * double(n) * sizeof(S));
    grid::for_indices(
        d, n,
        grid::per_example_gradients_kernel<T, S>{
            rows, channels, by, dy, x, bits, act == activation::leaky_relu ? slope : S{}, mean, invstd, scale, shift});
}

/// out = what x̂ is multiplied with in the gradient of scale; arguments as on the host.
template <class T, class S, GridDevice D>
void norm_output_gradient(D d, index_t rows, index_t channels, normalised_by by, const T* dy, const std::uint8_t* bits,
                          S slope, const S* invstd, T* out) {
    grid::for_indices(d, rows * channels, grid::norm_output_kernel<T, S>{channels, by, dy, bits, slope, invstd, out});
}

}  // namespace cairn
