#pragma once
// The format of an activation packed by error bounds (stash/bounded_codec.hpp), as every device makes and reads it:
// device/cpu/dithered_quantiser.hpp and byte_planes.hpp in vectors, device/grid/packed_symbols.hpp by blocks of
// threads.
//
// Numbers become symbols of a byte by a uniform quantiser with subtractive dither (Schuchman 1964; Gray and Stockham
// 1993):
//   q = round((x − o_c) / Δ_c + u),   x̂ = o_c + (q − u) Δ_c,   Δ_c = 2 eb_c,   c: the channel of x
// u is uniform in ±1/2 and drawn again by the decoder from the number of the element. |x − x̂| ≤ eb_c always, the error
// is uniform and independent of x. Without u the error depends on x, and a sum of many is biased.
//   symbol   zigzag(q) for |q| ≤ 127; 255, escape: |q| is larger, x is not finite, or rounding broke the bound
// Elements can be of two kinds by a bit each, with steps of their own.
//
// n symbols become planes of bits, each group of 32 with as many planes as its largest symbol needs:
//   | widths of the groups, 4 bits each, whole words | for each group: its planes, a word each; bit i of plane j: bit j
//   of symbol i |
// Values near zero take few bits, and packing is a comparison of whole vectors. n symbols take
// 4 ⌈⌈n / 32⌉ / 8⌉ + 4 Σ widths bytes.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <array>
#include <cmath>
#include <cstdint>

namespace cairn {

inline constexpr std::uint8_t escape_symbol = 255;
inline constexpr index_t symbol_group = 32;
inline constexpr index_t packed_block = 8192;  // elements that are packed by themselves, whole groups

/// Bits of elements `first` to first + 32 of n, zeros behind the last; `first`: a multiple of 32. Null: all are set.
CAIRN_HD inline std::uint32_t bits_of_group(const std::uint8_t* bits, index_t first, index_t n) {
    const index_t count = n - first;
    const std::uint32_t inside = count < symbol_group ? (1u << count) - 1u : ~0u;
    if (!bits) return inside;
    if (count >= symbol_group) return *reinterpret_cast<const std::uint32_t*>(bits + first / 8);
    std::uint32_t word = 0;
    for (int j = 0; 8 * j < count; ++j) word |= std::uint32_t{bits[first / 8 + j]} << (8 * j);
    return word & inside;
}

/// How elements of one channel are quantised, of each kind.
struct quantiser_steps {
    float offset = 0, step[2] = {}, inverse[2] = {};

    /// `bounds[k]`: of kind k, times `scale`.
    CAIRN_HD static quantiser_steps of(std::array<float, 2> bounds, float offset, float scale) {
        quantiser_steps s{.offset = offset};
        for (std::size_t k = 0; k < 2; ++k) {
            const float step = 2 * bounds[k] * scale * (1 - 0x1p-13f);  // leaves room for rounding
            s.step[k] = step - step == 0 ? step : 0;                    // without steps, values are escapes
            s.inverse[k] = s.step[k] > 0 ? 1 / s.step[k] : 0;
        }
        return s;
    }
};

/// Uniform in ±1/2: a 32-bit mixing of the element's number (Wellons' lowbias32), far cheaper than Philox, from which
/// the key is.
CAIRN_HD inline float dither_of(std::uint32_t element, std::uint32_t key) {
    std::uint32_t h = element * 0x9E3779B9u + key;
    h = (h ^ (h >> 16)) * 0x7FEB352Du;
    h = (h ^ (h >> 15)) * 0x846CA68Bu;
    h ^= h >> 16;
    return static_cast<float>(static_cast<std::int32_t>(h)) * 0x1p-32f;
}

CAIRN_HD inline std::int32_t symbol_of(float x, float offset, float step, float inverse, float u) {
    const float q = std::nearbyint((x - offset) * inverse + u), back = offset + (q - u) * step;
    const bool fits = std::abs(q) <= 127.0f && std::abs(x - back) <= 0.50005f * step;
    const std::int32_t n = fits ? static_cast<std::int32_t>(q) : 0;
    return fits ? (n << 1) ^ (n >> 31) : escape_symbol;
}

/// The inverse; of an escape, any value.
CAIRN_HD inline float value_of(std::int32_t symbol, float offset, float step, float u) {
    const std::int32_t q = (symbol >> 1) ^ -(symbol & 1);
    return offset + (static_cast<float>(q) - u) * step;
}

namespace byte_planes {

CAIRN_HD inline index_t groups(index_t n) { return (n + symbol_group - 1) / symbol_group; }
/// Of the widths of n symbols.
CAIRN_HD inline index_t width_bytes(index_t n) { return (groups(n) + 7) / 8 * 4; }

/// Bit j of each of four bytes, together; and back.
CAIRN_HD inline std::uint32_t four_bits(std::uint32_t bytes, int j) {
    return ((bytes >> j) & 0x01010101u) * 0x01020408u >> 24;
}
CAIRN_HD inline std::uint32_t four_bytes(std::uint32_t bits, int j) { return (bits * 0x00204081u & 0x01010101u) << j; }

}  // namespace byte_planes

}  // namespace cairn
