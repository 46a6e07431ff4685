#pragma once
// A small whole number a lane of a pack: which element of its window a maximum came from (device/cpu/pool.hpp).

#include <cairn/device/cpu/simd.hpp>

#include <cstdint>

namespace cairn::simd {

/// One small whole number per lane of a pack of T, in memory as type Code.
template <class T, class Code>
struct codes {
    pack<T> value;  // exact as long as T holds the number

    codes() = default;
    [[gnu::always_inline]] explicit codes(Code c) : value(static_cast<T>(c)) {}

    /// The first `count` lanes at p, zero in the others.
    [[gnu::always_inline]] static codes load(const Code* p, index_t count) {
        T lane[lanes<T>] = {};
        for (index_t i = 0; i < count; ++i) lane[i] = static_cast<T>(p[i]);
        codes c;
        c.value = simd::load(lane);
        return c;
    }
    [[gnu::always_inline]] void store(Code* p, index_t count) const {
        T lane[lanes<T>];
        simd::store(lane, value);
        for (index_t i = 0; i < count; ++i) p[i] = static_cast<Code>(lane[i]);
    }
    [[gnu::always_inline]] mask<T> operator==(const codes& other) const { return equal(value, other.value); }
    [[gnu::always_inline]] friend codes select(const mask<T>& m, const codes& a, const codes& b) {
        codes c;
        c.value = simd::select(m, a.value, b.value);
        return c;
    }
};

#if CAIRN_SIMD_AVX512
/// Bytes stay bytes: comparing and selecting them takes one instruction for the lanes of a whole pack.
template <class T>
struct codes<T, std::uint8_t> {
    __m128i value;

    codes() = default;
    [[gnu::always_inline]] explicit codes(std::uint8_t c) : value(_mm_set1_epi8(static_cast<char>(c))) {}

    [[gnu::always_inline]] static codes load(const std::uint8_t* p, index_t count) {
        codes c;
        c.value = _mm_maskz_loadu_epi8(static_cast<__mmask16>((1u << count) - 1u), p);
        return c;
    }
    [[gnu::always_inline]] void store(std::uint8_t* p, index_t count) const {
        _mm_mask_storeu_epi8(p, static_cast<__mmask16>((1u << count) - 1u), value);
    }
    [[gnu::always_inline]] mask<T> operator==(const codes& other) const {
        mask<T> m;
        m.bits = static_cast<lane_bits<T>>(_mm_cmpeq_epi8_mask(value, other.value));
        return m;
    }
    [[gnu::always_inline]] friend codes select(const mask<T>& m, const codes& a, const codes& b) {
        codes c;
        c.value = _mm_mask_blend_epi8(m.bits, b.value, a.value);
        return c;
    }
};
#endif

}  // namespace cairn::simd
