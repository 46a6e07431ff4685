#pragma once
// Small codes packed by planes: plane j holds bit j of all codes of a group, so that packing is a comparison of whole
// vectors and needs no shifts across codes.
//   group of m ≤ 128 codes of b bits: b planes of ⌈m/8⌉ bytes; code i is in bit i mod 8 of byte i / 8 of each plane

#include <cairn/device/codes.hpp>
#include <cairn/device/cpu/simd.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace cairn {

namespace detail {

template <class Count>
[[gnu::always_inline]] inline void store_planes(const std::uint32_t* codes, Count m, int bits, std::byte* out) {
    const index_t stride = (m + 7) / 8;
    for (index_t first = 0; first < m; first += 16) {
        const auto bytes = static_cast<std::size_t>(std::min<index_t>(2, stride - first / 8));
#if CAIRN_SIMD_AVX512
        const __m512i v = _mm512_loadu_si512(codes + first);
#endif
        for (int j = 0; j < bits; ++j) {
#if CAIRN_SIMD_AVX512
            const std::uint16_t plane = _mm512_test_epi32_mask(v, _mm512_set1_epi32(1 << j));
#else
            unsigned collected = 0;
            for (unsigned i = 0; i < 16; ++i) collected |= ((codes[first + i] >> j) & 1u) << i;
            const auto plane = static_cast<std::uint16_t>(collected);
#endif
            std::memcpy(out + j * stride + first / 8, &plane, bytes);
        }
    }
}

template <class Count>
[[gnu::always_inline]] inline void load_planes(const std::byte* in, Count m, int bits, std::uint32_t* codes) {
    const index_t stride = (m + 7) / 8;
    for (index_t first = 0; first < m; first += 16) {
        const auto bytes = static_cast<std::size_t>(std::min<index_t>(2, stride - first / 8));
#if CAIRN_SIMD_AVX512
        __m512i group = _mm512_setzero_si512();
        for (int j = 0; j < bits; ++j) {
            std::uint16_t plane = 0;
            std::memcpy(&plane, in + j * stride + first / 8, bytes);
            group = _mm512_mask_or_epi32(group, plane, group, _mm512_set1_epi32(1 << j));
        }
        _mm512_storeu_si512(codes + first, group);
#else
        std::uint32_t group[16] = {};
        for (int j = 0; j < bits; ++j) {
            std::uint16_t lanes = 0;
            std::memcpy(&lanes, in + j * stride + first / 8, bytes);
            const std::uint32_t plane = lanes;
#pragma omp simd
            for (std::uint32_t i = 0; i < 16; ++i) group[i] |= ((plane >> i) & 1u) << j;
        }
        std::memcpy(codes + first, group, sizeof group);
#endif
    }
}

/// The size of a whole group as a compile-time constant: its loops unroll.
using whole_group = std::integral_constant<index_t, plane_group>;

}  // namespace detail

/// Packs m ≤ 128 codes; codes has room for 128, those behind m are zero. Writes plane_bytes(m, bits) bytes.
inline void store_planes(const std::uint32_t* codes, index_t m, int bits, std::byte* out) {
    if (m == plane_group)
        detail::store_planes(codes, detail::whole_group{}, bits, out);
    else
        detail::store_planes(codes, m, bits, out);
}

/// The inverse: m codes to `codes`, which has room for 128.
inline void load_planes(const std::byte* in, index_t m, int bits, std::uint32_t* codes) {
    if (m == plane_group)
        detail::load_planes(in, detail::whole_group{}, bits, codes);
    else
        detail::load_planes(in, m, bits, codes);
}

}  // namespace cairn
