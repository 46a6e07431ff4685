#pragma once
// Each example's gradient of scale and shift of y = act(scale · x̂ + shift), x̂ = (x − mean) invstd: rows for
// second-order methods. The sums over the batch, for the step itself: batch_norm.hpp, layer_norm.hpp.
// Memory traffic: x, dy (bits).

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/activation_kind.hpp>
#include <cairn/device/cpu/activation.hpp>
#include <cairn/device/curvature_samples.hpp>

#include <algorithm>
#include <cstdint>

namespace cairn {

/// scale, shift (examples, channels) from dy, x (examples · rows, channels; of I) and the bits of forward, null without
/// activation. Arithmetic of T.
template <class I, class T>
void per_example_gradients(cpu, index_t examples, index_t rows, index_t channels, normalised_by by, const I* dy,
                           const I* x, const std::uint8_t* bits, activation act, T slope, const T* mean,
                           const T* invstd, T* scale, T* shift) {
    const double sums = static_cast<double>(examples) * static_cast<double>(channels),
                 all = sums * static_cast<double>(rows);
    const kernel_call call("gradients of examples", format_name<I>, 5 * all, 2 * all * sizeof(I) + 2 * sums * sizeof(T),
                           {examples, rows, channels});
    const T leak = act == activation::leaky_relu ? slope : T{};
    parallel_for(examples, std::max<index_t>(1, 16384 / std::max<index_t>(rows * channels, 1)),
                 [=](index_t first, index_t last) {
                     for (index_t n = first; n < last; ++n) {
                         T *const sum_scale = scale + n * channels, *const sum_shift = shift + n * channels;
                         std::fill_n(sum_scale, channels, T{});
                         std::fill_n(sum_shift, channels, T{});
                         for (index_t row = n * rows; row < (n + 1) * rows; ++row)
                             for (index_t c = 0; c < channels; ++c) {
                                 const index_t e = row * channels + c, k = by == normalised_by::row ? row : c;
                                 const bool on = !bits || (bits[e / 8] >> (e % 8) & 1) != 0;
                                 const T g = (on ? T{1} : leak) * static_cast<T>(dy[e]);
                                 sum_scale[c] += g * (static_cast<T>(x[e]) - mean[k]) * invstd[k];
                                 sum_shift[c] += g;
                             }
                     }
                 });
}

/// out = what x̂ is multiplied with in the gradient of scale: of normalised channels dy (rows, channels) behind the
/// activation, null bits without one; of normalised rows, which have none, dy / deviation.
template <class T>
void norm_output_gradient(cpu d, index_t rows, index_t channels, normalised_by by, const T* dy,
                          const std::uint8_t* bits, T slope, const T* invstd, T* out) {
    if (bits) return sign_activation_backward(d, rows * channels, slope, dy, bits, out);
    const double n = static_cast<double>(rows) * static_cast<double>(channels);
    const kernel_call call("norm output gradient", format_name<T>, n, 2 * n * sizeof(T), {rows, channels});
    parallel_for(rows, std::max<index_t>(1, 16384 / std::max<index_t>(channels, 1)), [=](index_t first, index_t last) {
        for (index_t row = first; row < last; ++row) {
            const T size = by == normalised_by::row ? invstd[row] : T{1};
            for (index_t e = row * channels; e < (row + 1) * channels; ++e) out[e] = dy[e] * size;
        }
    });
}

}  // namespace cairn
