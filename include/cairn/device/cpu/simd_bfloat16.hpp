#pragma once
// Packs of bfloat16: storage of 32 bytes, arithmetic in a pack of sixteen floats (rounding: bfloat16_registers.hpp).

#include <cairn/device/cpu/bfloat16_registers.hpp>
#include <cairn/device/cpu/simd.hpp>

namespace cairn::simd {

/// Type of arithmetic on numbers of T: float where T only stores.
template <class T>
using arithmetic = std::conditional_t<std::is_same_v<T, bfloat16>, float, T>;

/// The sixteen numbers at p, which need no alignment.
[[gnu::always_inline]] inline pack<float> load(const bfloat16* p) {
    pack<float> v;
    for (int i = 0; i < parts; ++i) v.part[i] = widen<register_bytes>(p + i * (lanes<float> / parts));
    return v;
}

[[gnu::always_inline]] inline void store(bfloat16* p, const pack<float>& v) {
    for (int i = 0; i < parts; ++i) round_to<register_bytes>(p + i * (lanes<float> / parts), v.part[i]);
}

/// The first `count` < 16 numbers at p, zeros in the other lanes. Touches nothing beyond them.
[[gnu::always_inline]] inline pack<float> load(const bfloat16* p, index_t count) {
    bfloat16 room[lanes<float>] = {};
#if CAIRN_SIMD_AVX512
    const __m256i kept = _mm256_maskz_loadu_epi16(static_cast<__mmask16>((1u << count) - 1u), p);
    std::memcpy(static_cast<void*>(room), &kept, sizeof room);
#else
    for (index_t i = 0; i < count; ++i) room[i] = p[i];
#endif
    return load(room);
}

[[gnu::always_inline]] inline void store(bfloat16* p, const pack<float>& v, index_t count) {
    bfloat16 room[lanes<float>];
    store(room, v);
#if CAIRN_SIMD_AVX512
    __m256i all;
    std::memcpy(&all, room, sizeof room);
    _mm256_mask_storeu_epi16(p, static_cast<__mmask16>((1u << count) - 1u), all);
#else
    for (index_t i = 0; i < count; ++i) p[i] = room[i];
#endif
}

template <index_t N>
[[gnu::always_inline]] inline pack<float> load(const bfloat16* p, std::integral_constant<index_t, N>) {
    return load(p);
}
template <index_t N>
[[gnu::always_inline]] inline void store(bfloat16* p, const pack<float>& v, std::integral_constant<index_t, N>) {
    store(p, v);
}

}  // namespace cairn::simd
