#pragma once
// Photographs whose inputs a device makes: what the host reads and draws of each, and who decodes, resamples and
// normalises there (course/decisions/0015). The interface that data/prefetcher.hpp sees; device/cuda/encoded_images.hpp
// has the kernels.
//   v(y, u, c) = Σ_s down(y, s) Σ_t across(u, t) pixel(first_down(y) + s, first_across(u) + t, c)    values 0 … 255
//   x(y, u, c) = scale(c) · round(jitter(v)) + shift(c)                                              round: where the
//   recipe says so

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

namespace cairn {

/// Random factors of one image, in the order in which they are applied: 0 brightness, 1 contrast, 2 saturation, 3 hue
/// (data/augment.hpp).
struct jitter_factors {
    std::int32_t order[4] = {0, 1, 2, 3};
    float brightness = 1, contrast = 1, saturation = 1, turn = 0;
    std::uint8_t active[4] = {};  // by step
};

namespace colour {
CAIRN_HD inline float limited(float v) { return v < 0.0f ? 0.0f : (v > 255.0f ? 255.0f : v); }
CAIRN_HD inline float grey(const float* p) { return 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2]; }
/// factor · pixel + (1 − factor) · other, in 0 … 255.
CAIRN_HD inline void blend(float* p, float factor, float other) {
    const float base = (1 - factor) * other;
    for (int c = 0; c < 3; ++c) p[c] = limited(factor * p[c] + base);
}
/// RGB → HSV, hue + turn (of 1), → RGB.
CAIRN_HD inline void rotate_hue(float* p, float turn) {
    const float over = p[0] > p[1] ? p[0] : p[1], under = p[0] < p[1] ? p[0] : p[1];
    const float high = over > p[2] ? over : p[2], low = under < p[2] ? under : p[2], span = high - low;
    if (span <= 0) return;
    float h = high == p[0] ? (p[1] - p[2]) / span : high == p[1] ? 2 + (p[2] - p[0]) / span : 4 + (p[0] - p[1]) / span;
    h = h / 6 + turn;
    h = (h - std::floor(h)) * 6;
    // Each channel is a trapezoid over the hue.
    const float offsets[3] = {5, 3, 1};
    for (int c = 0; c < 3; ++c) {
        const float k = std::fmod(offsets[c] + h, 6.0f), slope = k < 4 - k ? k : 4 - k;
        p[c] = high - span * (slope < 0 ? 0.0f : (slope > 1 ? 1.0f : slope));
    }
}
}  // namespace colour

/// Where outputs of one axis come from: output i is Σ_t weights[i · taps + t] source[first[i] + t].
struct axis_weights {
    std::int32_t taps = 0;
    std::vector<std::int32_t> first;  // (n)
    std::vector<float> weights;       // (n, taps)
};

/// One photograph on its way to a device.
struct encoded_image {
    std::vector<std::uint8_t> bytes;  // a JPEG file, or (height, width, 3) pixels
    bool compressed = false;          // which of both
    index_t height = 0, width = 0;    // of the whole image
    axis_weights down, across;        // `across` mirrors where the image is turned
    jitter_factors jitter;
    index_t sample = 0;  // of the data set
};

/// What becomes of resampled values. size 0: the data set's inputs are not made so.
struct device_image_transform {
    index_t size = 0;  // inputs are (size, size, 3)
    std::array<float, 3> scale{1, 1, 1}, shift{};
    bool rounded = false, jittered = false;
    explicit operator bool() const { return size > 0; }
};

/// How many photographs were decoded where.
struct encoded_image_counts {
    index_t on_device = 0, by_host = 0;
};

/// Makes inputs of photographs on D, in the stream of copies. `from` stays untouched until what `queue` then holds is
/// done; finish() has been called for what the call before last put there, and photographs of the same `set` (0 or 1)
/// are the same buffers' again. `by_host` makes a compressed photograph one of pixels, and throws what is wrong with
/// its file.
template <class D>
class encoded_image_decoder {
public:
    virtual ~encoded_image_decoder() = default;
    virtual void begin(std::size_t set, std::vector<encoded_image>& from, index_t count,
                       const device_image_transform& recipe, const std::function<void(encoded_image&)>& by_host,
                       typename D::copy_stream& queue, float* x) = 0;
    encoded_image_counts counts() const { return counts_; }

protected:
    encoded_image_counts counts_;
};

}  // namespace cairn
