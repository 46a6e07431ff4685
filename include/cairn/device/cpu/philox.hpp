#pragma once
// Philox4x32-10 (core/random.hpp) for many counters at once: eight blocks in the 64-bit lanes of a pack, whose low
// halves are the words. One widening multiplication then gives both halves of a product where the next round wants
// them:
//   p0 = c0 M0, p1 = c2 M1;   c0 = high(p1) ^ c1 ^ k0, c1 = low(p1), c2 = high(p0) ^ c3 ^ k1, c3 = low(p0)
// Whatever stands in the high halves of c1 and c3 is never read. Same bits as philox(), tested against it.

#include <cairn/core/random.hpp>
#include <cairn/device/cpu/simd.hpp>

#include <cstdint>

namespace cairn {

namespace detail {

/// Eight 64-bit words in registers.
struct words {
    using native = typename simd::register_of<std::uint64_t>::type;
    native part[simd::parts];
};

/// low(a) m, lane by lane; m < 2^32. (The zero-masked forms: g++ 12 warns of its own header in the plain ones.)
[[gnu::always_inline]] inline words multiply_low(const words& a, std::uint64_t m) {
    words c;
    for (int i = 0; i < simd::parts; ++i) {
#if CAIRN_SIMD_AVX512
        c.part[i] = reinterpret_cast<words::native>(_mm512_maskz_mul_epu32(
            0xff, reinterpret_cast<__m512i>(a.part[i]), _mm512_set1_epi64(static_cast<long long>(m))));
#elif defined(__AVX2__)
        c.part[i] = reinterpret_cast<words::native>(
            _mm256_mul_epu32(reinterpret_cast<__m256i>(a.part[i]), _mm256_set1_epi64x(static_cast<long long>(m))));
#elif defined(__SSE2__)
        c.part[i] = reinterpret_cast<words::native>(
            _mm_mul_epu32(reinterpret_cast<__m128i>(a.part[i]), _mm_set1_epi64x(static_cast<long long>(m))));
#else
        c.part[i] = (a.part[i] & 0xffffffffull) * m;
#endif
    }
    return c;
}

/// high(p) ^ a ^ k.
[[gnu::always_inline]] inline words mix(const words& p, const words& a, std::uint64_t k) {
    words c;
    for (int i = 0; i < simd::parts; ++i) c.part[i] = (p.part[i] >> 32) ^ a.part[i] ^ k;
    return c;
}

}  // namespace detail

/// The generator of one random_stream.
class philox_lanes {
public:
    explicit philox_lanes(const random_stream& random) : step_(random.step), stream_(random.stream) {
        for (std::uint32_t round = 0; round < rounds; ++round) {
            key_low_[round] = static_cast<std::uint32_t>(random.seed) + round * 0x9E3779B9u;
            key_high_[round] = static_cast<std::uint32_t>(random.seed >> 32) + round * 0xBB67AE85u;
        }
    }

    /// Word w of block first + i goes to bits[w * stride + i], for eight blocks i.
    [[gnu::always_inline]] void blocks(std::uint64_t first, std::uint32_t* bits, int stride) const {
        using detail::words;
        words c[4];
        for (int i = 0; i < simd::parts; ++i) {
            words::native block = words::native{} + first + static_cast<std::uint64_t>(i * lanes);
            for (int j = 0; j < lanes; ++j) block[j] += static_cast<std::uint64_t>(j);
            c[0].part[i] = block;
            c[1].part[i] = block >> 32;
            c[2].part[i] = words::native{} + step_;
            c[3].part[i] = words::native{} + stream_;
        }
        for (std::uint32_t round = 0; round < rounds; ++round) {
            const words p0 = detail::multiply_low(c[0], 0xD2511F53u), p1 = detail::multiply_low(c[2], 0xCD9E8D57u);
            c[0] = detail::mix(p1, c[1], key_low_[round]);
            c[1] = p1;
            c[2] = detail::mix(p0, c[3], key_high_[round]);
            c[3] = p0;
        }
        for (int w = 0; w < 4; ++w) {
#if CAIRN_SIMD_AVX512
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(bits + w * stride),
                                _mm512_maskz_cvtepi64_epi32(0xff, reinterpret_cast<__m512i>(c[w].part[0])));
#else
            std::uint64_t all[8];
            std::memcpy(all, c[w].part, sizeof all);
            for (int i = 0; i < 8; ++i) bits[w * stride + i] = static_cast<std::uint32_t>(all[i]);
#endif
        }
    }

private:
    static constexpr std::uint32_t rounds = 10;
    static constexpr int lanes = 8 / simd::parts;
    std::uint64_t step_, stream_, key_low_[rounds], key_high_[rounds];
};

}  // namespace cairn
