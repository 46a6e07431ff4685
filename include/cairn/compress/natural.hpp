#pragma once
// Natural compression (Horváth et al. 2019): each value becomes one of the two powers of two around it, at random such
// that
// the mean stays: |x| = m 2^e with 1 ≤ m < 2 becomes 2^(e+1) with probability m − 1, else 2^e. So E x̂ = x, E(x̂ − x)²
// ≤ x²/8.
// In bits: add random bits to the fraction, keep sign and exponent. Below 2^-126 the same sum gives 0 or 2^-126. Values
// from 2^127 on become 2^127, there being no 2^128. 16 random bits a value: a bias of 2^-17 of the step.
//
// Wire: | ⌈n/8⌉ bytes of signs, as in sign_bits.hpp | n bytes of exponents, biased by 127 |: 9 bits a value.
// State: none. Memory traffic: the bucket once.

#include <cairn/compress/random_bits.hpp>
#include <cairn/compress/sign_bits.hpp>
#include <cairn/core/host_device.hpp>

#include <bit>

namespace cairn {

struct natural_format {
    /// The biased exponent that stands for a magnitude, by 16 random bits.
    CAIRN_HD static std::uint32_t exponent(std::uint32_t magnitude, std::uint32_t r) {
        const std::uint32_t e = (magnitude + (r << 7 | 64u)) >> 23;
        return e < 254u ? e : 254u;
    }
    /// The value; `negative` is 0 or 1.
    CAIRN_HD static float widen(std::uint32_t e, std::uint32_t negative) {
        return std::bit_cast<float>(negative << 31 | (e < 254u ? e : 254u) << 23);
    }
};

class natural {
public:
    std::string name() const { return "natural"; }
    compression_contract contract(index_t) const {
        return {.unbiased = true, .deterministic = false, .contraction = 7.0 / 8, .variance = 1.0 / 8};
    }
    index_t max_bytes(index_t n) const { return (n + 7) / 8 + n; }

    void encode(std::span<const float> values, message& out, const encode_step& at) const {
        const index_t n = static_cast<index_t>(values.size());
        const float* const x = values.data();
        std::byte* const signs = out.prepare(max_bytes(n)).data();
        auto* const exponents = reinterpret_cast<std::uint8_t*>(signs + (n + 7) / 8);
        const group_bits random(at.own_random("natural"));
        const index_t bad =
            parallel_sum<index_t>(groups(n), compress_grain / random_group, [=](index_t begin, index_t end) {
                std::uint32_t infinite = 0;
                for (index_t g = begin; g < end; ++g) {
                    const index_t first = g * random_group, m = std::min(n - first, random_group);
                    std::uint32_t r[random_group], found = 0;
                    std::uint8_t rounded[random_group];  // of its own: bytes in the message might alias x
                    random.fill(g, r);
#pragma omp simd reduction(| : found)
                    for (index_t i = 0; i < m; ++i) {
                        const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(x[first + i]) & 0x7fffffffu;
                        rounded[i] = static_cast<std::uint8_t>(natural_format::exponent(magnitude, r[i]));
                        found |= magnitude >= 0x7f800000u ? 1u : 0u;
                    }
                    infinite |= found;
                    std::memcpy(exponents + first, rounded, static_cast<std::size_t>(m));
                    for (index_t i = 0; i < m; i += 16) {
                        const index_t count = std::min<index_t>(16, m - i);
                        const auto lanes = simd::to_bits(
                            simd::greater(simd::pack<float>(0),
                                          count == 16 ? simd::load(x + first + i) : simd::load(x + first + i, count)));
                        std::memcpy(signs + (first + i) / 8, &lanes, static_cast<std::size_t>((count + 7) / 8));
                    }
                }
                return static_cast<index_t>(infinite);
            });
        if (bad) require_finite(name(), values, at);
    }
    void decode(std::span<const std::byte> bytes, std::span<float> into, const encode_step&) const {
        decode_with(bytes, into, assign{});
    }
    void decode_add(std::span<const std::byte> bytes, std::span<float> into, const encode_step&, float scale) const {
        decode_with(bytes, into, add_scaled{scale});
    }

private:
    static index_t groups(index_t n) { return (n + random_group - 1) / random_group; }

    template <class Put>
    static void decode_with(std::span<const std::byte> bytes, std::span<float> into, Put put) {
        const index_t n = static_cast<index_t>(into.size());
        message_reader reader("natural", bytes);
        const std::byte* const signs = reader.take((n + 7) / 8, "signs");
        const auto* const exponents = reinterpret_cast<const std::uint8_t*>(reader.take(n, "exponents"));
        reader.finish();
        float* const y = into.data();
        parallel_for(groups(n), compress_grain / random_group, [=](index_t begin, index_t end) {
            for (index_t first = begin * random_group; first < std::min(n, end * random_group); first += 16) {
                const index_t m = std::min<index_t>(16, n - first);
                std::uint16_t lanes = 0;
                std::memcpy(&lanes, signs + first / 8, static_cast<std::size_t>((m + 7) / 8));
                const std::uint32_t all = lanes;
                const auto decode_run = [&](auto count) {
#pragma omp simd
                    for (index_t i = 0; i < count; ++i) {
                        put(y[first + i], natural_format::widen(exponents[first + i], (all >> i) & 1u));
                    }
                };
                if (m == 16)
                    decode_run(std::integral_constant<index_t, 16>{});
                else
                    decode_run(m);
            }
        });
    }
};

}  // namespace cairn
