#pragma once
// Small bytes by planes of bits, each group of 32 with as many planes as its largest byte needs:
//   | widths of the groups, 4 bits each | for each group: its planes, 4 bytes each; bit i of plane j: bit j of byte i |
// Values near zero take few bits, and packing is a comparison of whole vectors. n bytes take
// ⌈⌈n / 32⌉ / 2⌉ + 4 Σ widths.

#include <cairn/core/shape.hpp>

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cairn::byte_planes {

inline constexpr index_t group = 32;

inline index_t groups(index_t n) { return (n + group - 1) / group; }

namespace detail {

[[gnu::always_inline]] inline int width_of(const std::uint8_t* bytes) {
    std::uint64_t all = 0;
    for (int i = 0; i < 4; ++i) {
        std::uint64_t eight;
        std::memcpy(&eight, bytes + 8 * i, 8);
        all |= eight;
    }
    all |= all >> 32;
    all |= all >> 16;
    all |= all >> 8;
    return std::bit_width(static_cast<std::uint8_t>(all));
}

[[gnu::always_inline]] inline void store(const std::uint8_t* bytes, int width, std::uint8_t* out) {
#if defined(__AVX2__)
    const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(bytes));
    for (int j = 0; j < width; ++j) {  // bit j of each byte moves to its top
        const int plane = _mm256_movemask_epi8(_mm256_sll_epi16(v, _mm_cvtsi32_si128(7 - j)));
        std::memcpy(out + 4 * j, &plane, 4);
    }
#else
    for (int j = 0; j < width; ++j) {
        std::uint32_t plane = 0;
        for (int i = 0; i < 32; ++i) plane |= ((static_cast<std::uint32_t>(bytes[i]) >> j) & 1u) << i;
        std::memcpy(out + 4 * j, &plane, 4);
    }
#endif
}

[[gnu::always_inline]] inline void load(const std::uint8_t* in, int width, std::uint8_t* bytes) {
#if defined(__AVX2__)
    const __m256i spread = _mm256_setr_epi8(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1,  //
                                            2, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 3, 3, 3, 3),
                  own = _mm256_set1_epi64x(static_cast<long long>(0x8040201008040201u));
    __m256i v = _mm256_setzero_si256();
    for (int j = 0; j < width; ++j) {
        int plane;
        std::memcpy(&plane, in + 4 * j, 4);
        const __m256i bits = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(plane), spread), own);
        v = _mm256_or_si256(
            v, _mm256_and_si256(_mm256_cmpeq_epi8(bits, own), _mm256_set1_epi8(static_cast<char>(1u << j))));
    }
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(bytes), v);
#else
    std::memset(bytes, 0, 32);
    for (int j = 0; j < width; ++j) {
        std::uint32_t plane;
        std::memcpy(&plane, in + 4 * j, 4);
        for (int i = 0; i < 32; ++i) bytes[i] = static_cast<std::uint8_t>(bytes[i] | ((plane >> i) & 1u) << j);
    }
#endif
}

}  // namespace detail

/// Bytes that pack() writes. `bytes` has room for whole groups, zeros behind n.
inline index_t packed_bytes(const std::uint8_t* bytes, index_t n) {
    index_t planes = 0;
    for (index_t g = 0; g < groups(n); ++g) planes += detail::width_of(bytes + group * g);
    return (groups(n) + 1) / 2 + 4 * planes;
}

/// Returns the end of what it wrote.
inline std::uint8_t* pack(const std::uint8_t* bytes, index_t n, std::uint8_t* out) {
    std::uint8_t *const widths = out, *planes = out + (groups(n) + 1) / 2;
    for (index_t g = 0; g < groups(n); ++g) {
        const int width = detail::width_of(bytes + group * g);
        if (g % 2 == 0)
            widths[g / 2] = static_cast<std::uint8_t>(width);
        else
            widths[g / 2] = static_cast<std::uint8_t>(widths[g / 2] | width << 4);
        detail::store(bytes + group * g, width, planes);
        planes += 4 * width;
    }
    return planes;
}

/// The inverse; writes whole groups.
inline void unpack(const std::uint8_t* in, index_t n, std::uint8_t* bytes) {
    const std::uint8_t* planes = in + (groups(n) + 1) / 2;
    for (index_t g = 0; g < groups(n); ++g) {
        const int width = (in[g / 2] >> (g % 2 * 4)) & 15;
        detail::load(planes, width, bytes + group * g);
        planes += 4 * width;
    }
}

}  // namespace cairn::byte_planes
