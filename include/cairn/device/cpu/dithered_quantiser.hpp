#pragma once
// The quantiser of device/packed_symbols.hpp on the host, in groups of 32, the loops of which vectorise; and how the
// bytes of chosen elements move together and apart.

#include <cairn/core/random.hpp>
#include <cairn/device/packed_symbols.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#if defined(__BMI2__) && defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cairn {

/// See the top of the file. Kind 1: elements whose bit is set; kind 0: the others.
class dithered_quantiser {
public:
    static constexpr int group = symbol_group;

    /// `bounds[k]`: of kind k, times `scale[c]` in channel c. `offset` and `scale` are of all channels, the last axis.
    /// `first_number`: of `random`, that of element 0.
    dithered_quantiser(std::array<float, 2> bounds, std::span<const float> offset, std::span<const float> scale,
                       const random_stream& random, std::uint64_t first_number = 0)
        : channels_(static_cast<index_t>(offset.size())),
          key_(random.bits(0)),
          first_number_(static_cast<std::uint32_t>(first_number)) {
        const std::size_t padded = offset.size() + group;  // a group may begin at any channel
        offset_.resize(padded);
        for (std::size_t k = 0; k < 2; ++k) {
            step_[k].resize(padded);
            inverse_[k].resize(padded);
        }
        for (std::size_t i = 0; i < padded; ++i) {
            const std::size_t c = i % offset.size();
            const auto steps = quantiser_steps::of(bounds, offset[c], scale[c]);
            offset_[i] = offset[c];
            for (std::size_t k = 0; k < 2; ++k) {
                step_[k][i] = steps.step[k];
                inverse_[k][i] = steps.inverse[k];
            }
        }
    }

    /// Symbols of elements first to first + count of the tensor; those behind them, up to a whole group, are 0.
    /// `first`: a multiple of 32. `kinds`: a word for each group, bit i of its element i.
    [[gnu::noinline]] void encode(const float* x, index_t first, index_t count, const std::uint32_t* kinds,
                                  std::uint8_t* symbols) const {
        for (index_t g = 0; g < count; g += group) {
            const index_t inside = std::min<index_t>(group, count - g);
            float padded[group] = {};
            std::memcpy(padded, x + g, static_cast<std::size_t>(inside) * sizeof(float));
            encode_group(padded, first + g, kinds[g / group], symbols + g);
            if (inside < group) std::memset(symbols + count, 0, static_cast<std::size_t>(group - inside));
        }
    }

    /// The inverse: values of symbols, and 0 where an element's bit of `live` is not set. Of an escape, any value.
    [[gnu::noinline]] void decode(const std::uint8_t* symbols, index_t first, index_t count, const std::uint32_t* kinds,
                                  const std::uint32_t* live, float* x) const {
        for (index_t g = 0; g < count; g += group) {
            float values[group];
            decode_group(symbols + g, first + g, kinds[g / group], live[g / group], values);
            std::memcpy(x + g, values, static_cast<std::size_t>(std::min<index_t>(group, count - g)) * sizeof(float));
        }
    }

private:
    void encode_group(const float* x, index_t first, std::uint32_t kinds, std::uint8_t* symbols) const {
        const auto c = static_cast<std::size_t>(first % channels_);
        const float *const o = offset_.data() + c, *const step0 = step_[0].data() + c,
                           *const step1 = step_[1].data() + c, *const inverse0 = inverse_[0].data() + c,
                           *const inverse1 = inverse_[1].data() + c;
        const std::uint32_t at = static_cast<std::uint32_t>(first) + first_number_;
        std::int32_t symbol[group];
#pragma omp simd
        for (std::uint32_t i = 0; i < group; ++i) {
            const std::uint32_t kind = (kinds >> i) & 1u;
            const float s0 = step0[i], s1 = step1[i], r0 = inverse0[i], r1 = inverse1[i];
            const float step = kind ? s1 : s0, inverse = kind ? r1 : r0;
            symbol[i] = symbol_of(x[i], o[i], step, inverse, dither_of(at + i, key_));
        }
#pragma omp simd
        for (int i = 0; i < group; ++i) symbols[i] = static_cast<std::uint8_t>(symbol[i]);
    }

    void decode_group(const std::uint8_t* symbols, index_t first, std::uint32_t kinds, std::uint32_t live,
                      float* x) const {
        const auto c = static_cast<std::size_t>(first % channels_);
        const float *const o = offset_.data() + c, *const step0 = step_[0].data() + c,
                           *const step1 = step_[1].data() + c;
        const std::uint32_t at = static_cast<std::uint32_t>(first) + first_number_;
        std::int32_t symbol[group];
#pragma omp simd
        for (int i = 0; i < group; ++i) symbol[i] = symbols[i];
#pragma omp simd
        for (std::uint32_t i = 0; i < group; ++i) {
            const float s0 = step0[i], s1 = step1[i], step = (kinds >> i) & 1u ? s1 : s0;
            const float value = value_of(symbol[i], o[i], step, dither_of(at + i, key_));
            x[i] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & (0u - ((live >> i) & 1u)));
        }
    }

    index_t channels_;
    std::uint32_t key_, first_number_;
    std::vector<float> offset_;
    std::array<std::vector<float>, 2> step_, inverse_;
};

namespace detail {

/// The 8 bytes whose bit of `bits` is set, moved together from the lowest on; and back.
[[gnu::always_inline]] inline std::uint64_t gather_eight(std::uint64_t bytes, std::uint32_t bits) {
#if defined(__BMI2__) && defined(__x86_64__)
    return _pext_u64(bytes, _pdep_u64(bits, 0x0101010101010101u) * 255u);
#else
    std::uint64_t out = 0;
    int at = 0;
    for (int i = 0; i < 8; ++i)
        if ((bits >> i) & 1u) out |= ((bytes >> (8 * i)) & 255u) << (8 * at++);
    return out;
#endif
}
[[gnu::always_inline]] inline std::uint64_t spread_eight(std::uint64_t bytes, std::uint32_t bits) {
#if defined(__BMI2__) && defined(__x86_64__)
    return _pdep_u64(bytes, _pdep_u64(bits, 0x0101010101010101u) * 255u);
#else
    std::uint64_t out = 0;
    int at = 0;
    for (int i = 0; i < 8; ++i)
        if ((bits >> i) & 1u) out |= ((bytes >> (8 * at++)) & 255u) << (8 * i);
    return out;
#endif
}

}  // namespace detail

/// The bytes of 32 whose bit is set, one after another. Writes up to 32 bytes. Returns how many they are.
[[gnu::always_inline]] inline std::uint32_t gather_bytes(const std::uint8_t* bytes, std::uint32_t bits,
                                                         std::uint8_t* out) {
#if defined(__AVX512VBMI2__) && defined(__AVX512VL__)
    const __m256i all = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_maskz_compress_epi8(bits, all));
#else
    std::uint8_t* to = out;
    for (int part = 0; part < 4; ++part) {
        const std::uint32_t of = (bits >> (8 * part)) & 255u;
        std::uint64_t eight;
        std::memcpy(&eight, bytes + 8 * part, 8);
        eight = detail::gather_eight(eight, of);
        std::memcpy(to, &eight, 8);
        to += std::popcount(of);
    }
#endif
    return static_cast<std::uint32_t>(std::popcount(bits));
}

/// The inverse, over bytes that are 0 where a bit is set. Reads up to 32 bytes.
[[gnu::always_inline]] inline std::uint32_t spread_bytes(const std::uint8_t* in, std::uint32_t bits,
                                                         std::uint8_t* bytes) {
#if defined(__AVX512VBMI2__) && defined(__AVX512VL__)
    auto* const to = reinterpret_cast<__m256i*>(bytes);
    const __m256i some = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(in));
    _mm256_storeu_si256(to, _mm256_mask_expand_epi8(_mm256_loadu_si256(to), bits, some));
#else
    for (int part = 0; part < 4; ++part) {
        const std::uint32_t of = (bits >> (8 * part)) & 255u;
        std::uint64_t eight, before;
        std::memcpy(&eight, in, 8);
        std::memcpy(&before, bytes + 8 * part, 8);
        before |= detail::spread_eight(eight, of);
        std::memcpy(bytes + 8 * part, &before, 8);
        in += std::popcount(of);
    }
#endif
    return static_cast<std::uint32_t>(std::popcount(bits));
}

}  // namespace cairn
