#pragma once
// One bit a value: the signs of n floats, packed, and one scale for all of them. What sign and onebit send:
//
//   | scale, 4 bytes | n bits, value i in bit i mod 8 of byte i / 8, 1 for x < 0; the last byte filled with zeros |
//
// Bytes: 4 + ⌈n / 8⌉, 0 of nothing. Memory traffic: encode reads the bucket once, decode writes it once.

#include <cairn/compress/compressor.hpp>

namespace cairn {

constexpr index sign_bytes(index n) { return n ? 4 + (n + 7) / 8 : 0; }

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
    return parallel_sum<magnitude_sums>(static_cast<index>(values.size()), compress_grain, [=](index begin, index end) {
        using namespace simd;
        pack<double> absolute(0), squared(0);
        const pack<float> zero(0);
        for_packs<float>(end - begin, [&](index i, auto count) {
            const pack<float> v = load(x + begin + i, count);
            const mask<float> negative = greater(zero, v);
            const lane_bits<float> lane = to_bits(negative);
            std::memcpy(bits + (begin + i) / 8, &lane, static_cast<std::size_t>((index{count} + 7) / 8));
            const double_packs d = widen(select(negative, zero - v, v));
            absolute += d.low + d.high;
            squared += d.low * d.low + d.high * d.high;
        });
        return magnitude_sums{sum(absolute), sum(squared)};
    });
}

/// put(into[i], ±scale). Throws on a message of another length, and on a scale that no encoder writes.
template <class Put>
void decode_signs(std::string_view who, std::span<const std::byte> bytes, std::span<float> into, Put put) {
    message_reader reader(who, bytes);
    const index n = static_cast<index>(into.size());
    if (n == 0) return reader.finish();
    const float scale = reader.number<float>("the scale");
    if (!(scale >= 0) || !std::isfinite(scale)) reader.damaged("the scale before it is ", scale);
    const std::byte* const bits = reader.take((n + 7) / 8, "signs");
    reader.finish();
    float* const y = into.data();
    parallel_for(n, compress_grain, [=](index begin, index end) {
        index i = begin;
        for (; i + 16 <= end; i += 16) {
            std::uint16_t lanes;
            std::memcpy(&lanes, bits + i / 8, 2);
            const std::uint32_t all = lanes;
#pragma omp simd
            for (std::uint32_t j = 0; j < 16; ++j) put(y[i + j], (all >> j) & 1u ? -scale : scale);
        }
        for (; i < end; ++i) put(y[i], static_cast<unsigned>(bits[i / 8]) >> (i % 8) & 1u ? -scale : scale);
    });
}

}  // namespace cairn
