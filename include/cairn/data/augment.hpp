#pragma once
// Augmentations of images. Each is a small aggregate with the usual defaults and draws from the random numbers of its
// sample alone.
//   random_resized_crop  a box of random area and aspect ratio (Szegedy et al. 2015): 10 tries, then the largest that
//   fits
//   centre_crop          the short side to `resize`, of that the middle `crop`: one box, so that one resampling does
//                        both
//   colour_jitter        brightness, contrast, saturation and hue by random factors, in random order
// Definitions follow torchvision's, so that published recipes carry over.

#include <cairn/data/dataset.hpp>
#include <cairn/data/image.hpp>

#include <algorithm>
#include <array>
#include <cmath>

namespace cairn {

struct random_resized_crop {
    float area_min = 0.08f, area_max = 1.0f;           // share of the image's area
    float ratio_min = 3.0f / 4, ratio_max = 4.0f / 3;  // width / height

    /// A box of whole pixels inside an image of height × width.
    pixel_box operator()(index_t height, index_t width, sample_random& random) const {
        const float area = static_cast<float>(height) * static_cast<float>(width);
        for (int attempt = 0; attempt < 10; ++attempt) {
            const float target = area * random.uniform(area_min, area_max);
            const float ratio = std::exp(random.uniform(std::log(ratio_min), std::log(ratio_max)));
            const auto w = static_cast<index_t>(std::lround(std::sqrt(target * ratio)));
            const auto h = static_cast<index_t>(std::lround(std::sqrt(target / ratio)));
            if (w < 1 || h < 1 || w > width || h > height) continue;
            const index_t top = random.below(height - h + 1), left = random.below(width - w + 1);
            return whole(top, left, h, w);
        }
        const float ratio = static_cast<float>(width) / static_cast<float>(height);
        index_t h = height, w = width;
        if (ratio < ratio_min)
            h = std::clamp<index_t>(std::lround(static_cast<float>(w) / ratio_min), 1, height);
        else if (ratio > ratio_max)
            w = std::clamp<index_t>(std::lround(static_cast<float>(h) * ratio_max), 1, width);
        return whole((height - h) / 2, (width - w) / 2, h, w);
    }

private:
    static pixel_box whole(index_t top, index_t left, index_t height, index_t width) {
        return {static_cast<double>(top), static_cast<double>(left), static_cast<double>(height),
                static_cast<double>(width)};
    }
};

struct centre_crop {
    index_t resize = 256, crop = 224;

    /// The box, in fractional pixels, that becomes crop × crop.
    pixel_box operator()(index_t height, index_t width) const {
        const double side =
            static_cast<double>(std::min(height, width)) * static_cast<double>(crop) / static_cast<double>(resize);
        return {(static_cast<double>(height) - side) / 2, (static_cast<double>(width) - side) / 2, side, side};
    }
};

namespace detail {

inline float grey(const float* p) { return 0.299f * p[0] + 0.587f * p[1] + 0.114f * p[2]; }

/// factor · pixel + (1 − factor) · other, in 0 … 255.
inline void blend(float* p, float factor, float other) {
    const float base = (1 - factor) * other;
    for (int c = 0; c < 3; ++c) p[c] = std::clamp(factor * p[c] + base, 0.0f, 255.0f);
}

/// RGB → HSV, hue + turn (of 1), → RGB.
inline void rotate_hue(float* p, float turn) {
    const float high = std::max({p[0], p[1], p[2]}), span = high - std::min({p[0], p[1], p[2]});
    if (span <= 0) return;
    float h = high == p[0] ? (p[1] - p[2]) / span : high == p[1] ? 2 + (p[2] - p[0]) / span : 4 + (p[0] - p[1]) / span;
    h = h / 6 + turn;
    h = (h - std::floor(h)) * 6;
    // Each channel is a trapezoid over the hue.
    const float offsets[3] = {5, 3, 1};
    for (int c = 0; c < 3; ++c) {
        const float k = std::fmod(offsets[c] + h, 6.0f);
        p[c] = high - span * std::clamp(std::min(k, 4 - k), 0.0f, 1.0f);
    }
}

}  // namespace detail

struct colour_jitter {
    float brightness = 0, contrast = 0, saturation = 0,
          hue = 0;  // 0: off; factors from [1 − b, 1 + b], turns of hue from [−h, h]

    bool active() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }

    /// Changes RGB values 0 … 255 in place.
    void operator()(float* rgb, index_t pixels, sample_random& random) const {
        std::array<int, 4> order{0, 1, 2, 3};
        for (index_t i = 3; i > 0; --i)
            std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(random.below(i + 1))]);
        // All four are drawn, whichever are off: what comes after draws the same numbers.
        const auto factor = [&](float range) { return random.uniform(std::max(0.0f, 1 - range), 1 + range); };
        const float bright = factor(brightness), contrasted = factor(contrast), saturated = factor(saturation);
        const float turn = random.uniform(-hue, hue);
        const auto each = [&](auto&& change) {
            for (index_t i = 0; i < pixels; ++i) change(rgb + 3 * i);
        };
        for (const int step : order) {
            if (step == 0 && brightness > 0) each([&](float* p) { detail::blend(p, bright, 0.0f); });
            if (step == 1 && contrast > 0) {
                double sum = 0;
                each([&](const float* p) { sum += static_cast<double>(detail::grey(p)); });
                const float mean = static_cast<float>(sum / static_cast<double>(pixels));
                each([&](float* p) { detail::blend(p, contrasted, mean); });
            }
            if (step == 2 && saturation > 0) each([&](float* p) { detail::blend(p, saturated, detail::grey(p)); });
            if (step == 3 && hue > 0) each([&](float* p) { detail::rotate_hue(p, turn); });
        }
    }
};

}  // namespace cairn
