#pragma once
// Planes of bits (device/packed_symbols.hpp) on the host: a group in one vector.

#include <cairn/device/packed_symbols.hpp>

#include <bit>
#include <cstdint>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace cairn::byte_planes {

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
        for (int i = 0; i < 8; ++i) {
            std::uint32_t four;
            std::memcpy(&four, bytes + 4 * i, 4);
            plane |= four_bits(four, j) << (4 * i);
        }
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
    for (int i = 0; i < 8; ++i) {
        std::uint32_t four = 0;
        for (int j = 0; j < width; ++j) four |= four_bytes((in[4 * j + i / 2] >> (i % 2 * 4)) & 15u, j);
        std::memcpy(bytes + 4 * i, &four, 4);
    }
#endif
}

}  // namespace detail

/// Bytes that pack() writes. `bytes` has room for whole groups, zeros behind n.
inline index_t packed_bytes(const std::uint8_t* bytes, index_t n) {
    index_t planes = 0;
    for (index_t g = 0; g < groups(n); ++g) planes += detail::width_of(bytes + symbol_group * g);
    return width_bytes(n) + 4 * planes;
}

/// Returns the end of its output.
inline std::uint8_t* pack(const std::uint8_t* bytes, index_t n, std::uint8_t* out) {
    std::uint8_t *const widths = out, *planes = out + width_bytes(n);
    std::memset(widths, 0, static_cast<std::size_t>(width_bytes(n)));
    for (index_t g = 0; g < groups(n); ++g) {
        const int width = detail::width_of(bytes + symbol_group * g);
        widths[g / 2] = static_cast<std::uint8_t>(widths[g / 2] | width << (g % 2 * 4));
        detail::store(bytes + symbol_group * g, width, planes);
        planes += 4 * width;
    }
    return planes;
}

/// The inverse; writes whole groups.
inline void unpack(const std::uint8_t* in, index_t n, std::uint8_t* bytes) {
    const std::uint8_t* planes = in + width_bytes(n);
    for (index_t g = 0; g < groups(n); ++g) {
        const int width = (in[g / 2] >> (g % 2 * 4)) & 15;
        detail::load(planes, width, bytes + symbol_group * g);
        planes += 4 * width;
    }
}

}  // namespace cairn::byte_planes
