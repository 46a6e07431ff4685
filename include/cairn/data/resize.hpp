#pragma once
// Bilinear resampling with antialiasing: the triangle filter, widened by the factor of reduction, as in Pillow.
//   scale = box / n,  s = max(scale, 1),  centre of output i: c = begin + (i + ½)·scale
//   weight of source j: max(0, 1 − |j + ½ − c| / s), the weights of an output normalised to sum 1
// Separable: rows first, into floats, then columns. Source pixels outside the box take no part, as if the box had been
// cut out first (torchvision's crop and resize). Bytes moved: source once, a float row a source row, the result once.

#include <cairn/core/error.hpp>
#include <cairn/data/image.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace cairn {

/// For each output position of one axis: the first source position and `taps` weights.
struct resize_axis {
    index_t taps = 1;
    std::vector<index_t> first;
    std::vector<float> weights;  // (n, taps)

    /// From [begin, begin + extent) of a source of `in` pixels to n pixels; mirrored: from last to first.
    resize_axis(index_t in, double begin, double extent, index_t n, bool mirrored = false) {
        require(in >= 1 && n >= 1 && extent > 0 && begin >= -1e-6 && begin + extent <= static_cast<double>(in) + 1e-6,
                "resize: pixels ", begin, " to ", begin + extent, " of ", in, " to ", n, " pixels");
        const double scale = extent / static_cast<double>(n), support = std::max(scale, 1.0);
        // Source pixels [low, high) lie in the box, at least in part; the triangle covers at most ⌈2 support⌉ of them.
        const auto low = std::max<index_t>(0, static_cast<index_t>(std::floor(begin + 1e-6)));
        const auto high = std::min(in, static_cast<index_t>(std::ceil(begin + extent - 1e-6)));
        taps = std::min(std::max<index_t>(high - low, 1), static_cast<index_t>(std::ceil(support * 2)));
        first.resize(static_cast<std::size_t>(n));
        weights.assign(static_cast<std::size_t>(n * taps), 0.0f);
        for (index_t i = 0; i < n; ++i) {
            const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
            const auto from = std::clamp(static_cast<index_t>(std::floor(centre - support - 0.5)) + 1, low,
                                         std::max(low, high - taps));
            const index_t at = mirrored ? n - 1 - i : i;
            float* w = weights.data() + at * taps;
            double sum = 0;
            for (index_t t = 0; t < taps; ++t) sum += weight(from + t, centre, support);
            for (index_t t = 0; t < taps; ++t) w[t] = static_cast<float>(weight(from + t, centre, support) / sum);
            first[static_cast<std::size_t>(at)] = from;
        }
    }

private:
    static double weight(index_t j, double centre, double support) {
        return std::max(0.0, 1 - std::abs(static_cast<double>(j) + 0.5 - centre) / support);
    }
};

/// Memory that a thread uses again for every image.
struct resize_scratch {
    raw_vector<float> source, rows;
};

namespace detail {

// Four floats in one register, on any machine that g++ or clang knows.
using four = float __attribute__((vector_size(16)));
inline four load_four(const float* p) {
    four v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

// Rows rows of the source to as many of the result, `in_stride` and `out_stride` floats apart; Taps is 0 for any
// number. Rows share the loads of positions and weights. An RGB pixel is handled as four floats: the fourth is
// overwritten by the next pixel, so that rows have room for one more.
template <int Taps, int Rows>
inline void resample_rows(const float* in, index_t in_stride, const resize_axis& axis, index_t channels, float* out,
                          index_t out_stride) {
    const index_t n = static_cast<index_t>(axis.first.size()), taps = Taps ? Taps : axis.taps;
    const index_t* first = axis.first.data();
    const float* w = axis.weights.data();
    if (channels == 1) {
        for (index_t x = 0; x < n; ++x, w += taps)
            for (index_t row = 0; row < Rows; ++row) {
                float sum = 0;
                for (index_t t = 0; t < taps; ++t) sum += w[t] * in[row * in_stride + first[x] + t];
                out[row * out_stride + x] = sum;
            }
        return;
    }
    for (index_t x = 0; x < n; ++x, w += taps) {
        const float* from = in + first[x] * 3;
        four sum[static_cast<std::size_t>(Rows)];
        for (index_t row = 0; row < Rows; ++row) sum[row] = w[0] * load_four(from + row * in_stride);
        for (index_t t = 1; t < taps; ++t)
            for (index_t row = 0; row < Rows; ++row) sum[row] += w[t] * load_four(from + row * in_stride + t * 3);
        for (index_t row = 0; row < Rows; ++row) std::memcpy(out + row * out_stride + x * 3, &sum[row], sizeof(four));
    }
}

// A piece of an output row from rows `stride` floats apart: out = factor · Σ_t w_t row_t + offset.
template <int Taps>
inline void mix_rows(const float* rows, index_t stride, const float* w, index_t taps, const float* factor,
                     const float* offset, index_t n, float* out) {
    if constexpr (Taps > 0) {
#pragma omp simd
        for (index_t i = 0; i < n; ++i) {
            float sum = w[0] * rows[i];
            for (index_t t = 1; t < Taps; ++t) sum += w[t] * rows[t * stride + i];
            out[i] = sum * factor[i] + offset[i];
        }
    } else {
        float sum[3 * 64] = {};
        for (index_t t = 0; t < taps; ++t) {
#pragma omp simd
            for (index_t i = 0; i < n; ++i) sum[i] += w[t] * rows[t * stride + i];
        }
#pragma omp simd
        for (index_t i = 0; i < n; ++i) out[i] = sum[i] * factor[i] + offset[i];
    }
}

// Calls f with the number of taps as a constant where that pays, 0 for any other.
template <class F>
inline void with_taps(index_t taps, F&& f) {
    switch (taps) {
        case 2:
            return f(std::integral_constant<int, 2>{});
        case 3:
            return f(std::integral_constant<int, 3>{});
        case 4:
            return f(std::integral_constant<int, 4>{});
        default:
            return f(std::integral_constant<int, 0>{});
    }
}

}  // namespace detail

/// The part `box` of `in` as height × width × channels floats at `out`: scale[i mod channels] · value + shift[i mod
/// channels], values being 0 … 255. `scale` and `shift` have one entry a channel. mirrored: left and right exchanged. 1
/// or 3 channels.
inline void resize_to_float(const image& in, pixel_box box, bool mirrored, index_t height, index_t width,
                            const float* scale, const float* shift, float* out, resize_scratch& scratch) {
    const index_t channels = in.channels, line = width * channels;
    require(channels == 1 || channels == 3, "resize: an image of ", channels, " channels; 1 or 3 are possible");
    const resize_axis across(in.width, box.left, box.width, width, mirrored),
        down(in.height, box.top, box.height, height);
    const index_t first = *std::min_element(down.first.begin(), down.first.end());
    const index_t rows = *std::max_element(down.first.begin(), down.first.end()) + down.taps - first;
    constexpr index_t together = 4, pad = 4;
    const index_t in_row = in.width * channels, in_stride = in_row + pad, out_stride = line + pad;
    scratch.source.resize(static_cast<std::size_t>(together * in_stride));
    scratch.rows.resize(static_cast<std::size_t>(rows * out_stride));
    detail::with_taps(across.taps, [&](auto taps) {
        for (index_t y = 0; y < rows; y += together) {
            const index_t count = std::min(together, rows - y);
            for (index_t r = 0; r < count; ++r) {
                const std::uint8_t* from = in.row(first + y + r);
                float* to = scratch.source.data() + r * in_stride;
#pragma omp simd
                for (index_t i = 0; i < in_row; ++i) to[i] = static_cast<float>(from[i]);
            }
            float* to = scratch.rows.data() + y * out_stride;
            if (count == together)
                detail::resample_rows<taps, together>(scratch.source.data(), in_stride, across, channels, to,
                                                      out_stride);
            else
                for (index_t r = 0; r < count; ++r)
                    detail::resample_rows<taps, 1>(scratch.source.data() + r * in_stride, in_stride, across, channels,
                                                   to + r * out_stride, out_stride);
        }
    });
    // Pieces of whole pixels, so that one short table of factors serves all of them.
    float factor[3 * 64], offset[3 * 64];
    const index_t piece = channels * 64;
    for (index_t i = 0; i < piece; ++i) {
        factor[i] = scale[i % channels];
        offset[i] = shift[i % channels];
    }
    detail::with_taps(down.taps, [&](auto taps) {
        for (index_t y = 0; y < height; ++y) {
            const float* w = down.weights.data() + y * down.taps;
            const float* from = scratch.rows.data() + (down.first[static_cast<std::size_t>(y)] - first) * out_stride;
            for (index_t begin = 0; begin < line; begin += piece)
                detail::mix_rows<taps>(from + begin, out_stride, w, down.taps, factor, offset,
                                       std::min(piece, line - begin), out + y * line + begin);
        }
    });
}

/// Values rounded to 8 bits, halves upwards.
inline void round_to_pixels(const float* values, index_t n, std::uint8_t* pixels) {
#pragma omp simd
    for (index_t i = 0; i < n; ++i) pixels[i] = static_cast<std::uint8_t>(std::clamp(values[i] + 0.5f, 0.0f, 255.0f));
}

/// The whole of an image at another size, rounded to 8 bits.
inline image resized(const image& in, index_t height, index_t width) {
    constexpr std::array<float, 3> one{1, 1, 1}, zero{};
    std::vector<float> values(static_cast<std::size_t>(height * width * in.channels));
    resize_scratch scratch;
    resize_to_float(in, {0, 0, static_cast<double>(in.height), static_cast<double>(in.width)}, false, height, width,
                    one.data(), zero.data(), values.data(), scratch);
    image out;
    out.resize(height, width, in.channels);
    round_to_pixels(values.data(), static_cast<index_t>(values.size()), out.pixels.data());
    return out;
}

}  // namespace cairn
