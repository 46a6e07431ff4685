#pragma once
// One bit a value: the signs of n floats, packed, and a scale for each `block` of them. What sign and onebit send:
//
//   | ⌈n / block⌉ scales, 4 bytes each | n bits, filled up with zeros: value i in bit i mod 8 of byte i / 8, 1: x < 0 |
//
// onebit has one scale for all. Bytes: 4 ⌈n / block⌉ + ⌈n / 8⌉. Memory traffic: encode reads the bucket once, decode
// writes it once.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/message_reader.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/simd.hpp>

#include <vector>

namespace cairn {

/// Σ|x| and Σx², taken while the signs are packed.
struct magnitude_sums {
    double absolute = 0, squared = 0;
    magnitude_sums& operator+=(const magnitude_sums& other) {
        absolute += other.absolute;
        squared += other.squared;
        return *this;
    }
};

/// Packs the signs of x into (n + 7) / 8 bytes. The sums are finite exactly when all values are.
inline magnitude_sums pack_signs(std::span<const float> values, std::byte* bits) {
    const float* const x = values.data();
    const double n = static_cast<double>(values.size());
    const kernel_call call("pack signs", "f32", 3 * n, 4 * n + n / 8, {static_cast<index_t>(values.size())});
    // A multiple of 8 values begins at each piece, so that pieces share no byte.
    return parallel_sum<magnitude_sums>(
        static_cast<index_t>(values.size()), compress_grain, [=](index_t begin, index_t end) {
            using namespace simd;
            pack<double> absolute(0), squared(0);
            const pack<float> zero(0);
            for_packs<float>(end - begin, [&](index_t i, auto count) {
                const pack<float> v = load(x + begin + i, count);
                const mask<float> negative = greater(zero, v);
                const lane_bits<float> lane = to_bits(negative);
                std::memcpy(bits + (begin + i) / 8, &lane, static_cast<std::size_t>((index_t{count} + 7) / 8));
                const double_packs d = widen(select(negative, zero - v, v));
                absolute += d.low + d.high;
                squared += d.low * d.low + d.high * d.high;
            });
            return magnitude_sums{sum(absolute), sum(squared)};
        });
}

/// put(into[i], ±scale of its block). Throws on a message of another length, and on a scale that no encoder writes.
/// `block`: a multiple of 16.
template <class Put>
void decode_signs(std::string_view who, std::span<const std::byte> bytes, std::span<float> into, Put put,
                  index_t block = one_scale) {
    message_reader reader(who, bytes);
    const index_t n = static_cast<index_t>(into.size()), blocks = scale_count(n, block);
    const kernel_call call("unpack signs", "f32", static_cast<double>(n),
                           8.0 * static_cast<double>(n) + static_cast<double>(bytes.size()), {n, block});
    if (on_phantom_rank()) return;  // the message's bytes are not there
    std::vector<float> scales(static_cast<std::size_t>(blocks));
    for (float& scale : scales) {
        scale = reader.number<float>("the scale");
        if (!(scale >= 0) || !std::isfinite(scale)) reader.damaged("the scale before it is ", scale);
    }
    const std::byte* const bits = reader.take((n + 7) / 8, "signs");
    reader.finish();
    float* const y = into.data();
    parallel_for(n, compress_grain, [&, y, bits](index_t begin, index_t end) {
        for (index_t i = begin; i < end;) {
            const float scale = scales[static_cast<std::size_t>(i / block)];
            const index_t last = std::min(end, (i / block + 1) * block);
            for (; i + 16 <= last; i += 16) {
                std::uint16_t lanes;
                std::memcpy(&lanes, bits + i / 8, 2);
                const std::uint32_t all = lanes;
#pragma omp simd
                for (std::uint32_t j = 0; j < 16; ++j) put(y[i + j], (all >> j) & 1u ? -scale : scale);
            }
            for (; i < last; ++i) put(y[i], static_cast<unsigned>(bits[i / 8]) >> (i % 8) & 1u ? -scale : scale);
        }
    });
}

}  // namespace cairn
