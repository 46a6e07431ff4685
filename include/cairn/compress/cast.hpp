#pragma once
// Compressors that round each value to a 16-bit format: bf16.hpp and fp16.hpp. A format is
//   name, type (a summand)
//   nearest(x)        its 16 bits, to nearest, ties to even
//   stochastic(x, r)  rounded up with the probability that keeps the mean, from 16 random bits r
//   widen(h)          back to float, exact
//   contraction       δ of the contract, for values in its normal range
//
// Wire: n × 2 bytes. Memory traffic: encode 4 + 2, decode 2 + 4 bytes a value.
// NaN and Inf pass through, and finite values at the end of the format's range round as the format's file says.

#include <cairn/compress/compressor.hpp>
#include <cairn/compress/random_bits.hpp>

namespace cairn {

namespace detail {

template <class Format, class Put>
void decode_cast(std::span<const std::byte> bytes, std::span<float> into, Put put) {
    const index_t n = static_cast<index_t>(into.size());
    message_reader reader(Format::name, bytes);
    const std::byte* const source = reader.take(2 * n, "values");
    reader.finish();
    float* const y = into.data();
    parallel_for(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
        for (index_t i = begin; i < end; ++i) {
            std::uint16_t h;
            std::memcpy(&h, source + 2 * i, 2);
            put(y[i], Format::widen(h));
        }
    });
}

}  // namespace detail

/// Rounds to nearest, ties to even. Messages may be added in the format itself.
template <class Format>
class nearest_cast {
public:
    std::string name() const { return Format::name; }
    compression_contract contract(index_t) const {
        return {.summable = Format::type, .contraction = Format::contraction};
    }
    index_t max_bytes(index_t n) const { return 2 * n; }

    void encode(std::span<const float> values, message& out, const encode_step&) const {
        const index_t n = static_cast<index_t>(values.size());
        const float* const x = values.data();
        auto* const target = reinterpret_cast<std::uint16_t*>(out.prepare(max_bytes(n)).data());  // aligned
        parallel_for(n, compress_grain, [=](index_t begin, index_t end) {
#pragma omp simd
            for (index_t i = begin; i < end; ++i) target[i] = Format::nearest(x[i]);
        });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        detail::decode_cast<Format>(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        detail::decode_cast<Format>(bytes, into, add_scaled{scale});
    }
};

/// Rounds up or down at random: unbiased, so that small contributions to a sum are not lost.
template <class Format>
class stochastic_cast {
public:
    std::string name() const { return std::string(Format::name) + "_stochastic"; }
    compression_contract contract(index_t) const {
        return {.unbiased = true,
                .deterministic = false,
                .summable = Format::type,
                .contraction = 1 - Format::variance,
                .variance = Format::variance};
    }
    index_t max_bytes(index_t n) const { return 2 * n; }

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size());
        const float* const x = values.data();
        auto* const target = reinterpret_cast<std::uint16_t*>(out.prepare(max_bytes(n)).data());  // aligned
        const group_bits random(at.own_random(Format::name));
        parallel_for((n + random_group - 1) / random_group, compress_grain / random_group,
                     [=](index_t begin, index_t end) {
                         for (index_t g = begin; g < end; ++g) {
                             std::uint32_t r[random_group];
                             random.fill(g, r);
                             const index_t first = g * random_group, count = std::min(n - first, random_group);
#pragma omp simd
                             for (index_t i = 0; i < count; ++i)
                                 target[first + i] = Format::stochastic(x[first + i], r[i]);
                         }
                     });
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        detail::decode_cast<Format>(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        detail::decode_cast<Format>(bytes, into, add_scaled{scale});
    }
};

}  // namespace cairn
