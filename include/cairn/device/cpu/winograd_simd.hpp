#pragma once
// A vector of lanes, as wide as the target's registers, through the vector extension that g++ and clang share.
// Operators work lane by lane; the compiler contracts a * b + c into one fused operation where the target has it.

#include <bit>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/bfloat16_registers.hpp>
#include <cstddef>
#include <cstring>
#include <utility>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#define CAIRN_INLINE inline __attribute__((always_inline))

namespace cairn::winograd {

#if defined(__AVX512F__)
inline constexpr int register_bytes = 64, register_count = 32;
#elif defined(__AVX__)
inline constexpr int register_bytes = 32, register_count = 16;
#else
inline constexpr int register_bytes = 16, register_count = 16;
#endif

template <class T>
struct vector_of {
    typedef T type __attribute__((vector_size(register_bytes)));
};
template <>
struct vector_of<bfloat16> {};  // computed in vectors of floats
template <class T>
using vec = typename vector_of<T>::type;

/// Elements of T in one vector.
template <class T>
inline constexpr index_t lanes = register_bytes / static_cast<index_t>(sizeof(T));

/// ceil(a / b) for positive b.
constexpr index_t ceil_div(index_t a, index_t b) { return (a + b - 1) / b; }

template <class T>
CAIRN_INLINE vec<T> load(const T* p) {
    vec<T> v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

template <class T>
CAIRN_INLINE void store(T* p, const vec<T>& v) {
    std::memcpy(p, &v, sizeof v);
}

/// The first `count` elements at p, zeros behind them. Reads nothing beyond them.
template <class T>
CAIRN_INLINE vec<T> load(const T* p, index_t count) {
    if (count >= lanes<T>) return load(p);
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
        const auto mask = static_cast<__mmask16>((1u << count) - 1u);
        return reinterpret_cast<vec<T>>(_mm512_maskz_loadu_epi32(mask, p));
    }
#endif
    vec<T> v{};
    std::memcpy(&v, p, static_cast<std::size_t>(count) * sizeof(T));
    return v;
}

/// Writes the first `count` elements of v.
template <class T>
CAIRN_INLINE void store(T* p, const vec<T>& v, index_t count) {
    if (count >= lanes<T>) return store(p, v);
#if defined(__AVX512F__)
    if constexpr (sizeof(T) == 4) {
        const auto mask = static_cast<__mmask16>((1u << count) - 1u);
        _mm512_mask_storeu_epi32(p, mask, std::bit_cast<__m512i>(v));
        return;
    }
#endif
    std::memcpy(p, &v, static_cast<std::size_t>(count) * sizeof(T));
}

/// Writes a vector past the caches where the target can (p on a vector boundary), for results too large to stay there.
/// Call stream_end() before another thread may read them.
template <class T>
CAIRN_INLINE void stream(T* p, const vec<T>& v) {
#if defined(__AVX512F__)
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p), std::bit_cast<__m512i>(v));
#else
    store(p, v);
#endif
}
CAIRN_INLINE void stream_end() {
#if defined(__AVX512F__)
    _mm_sfence();
#endif
}

// The same of images in bfloat16: a vector of floats.
CAIRN_INLINE vec<float> load(const bfloat16* p) { return simd::widen<register_bytes>(p); }
CAIRN_INLINE vec<float> load(const bfloat16* p, index_t count) {
    if (count >= lanes<float>) return load(p);
    bfloat16 room[lanes<float>] = {};
    for (index_t i = 0; i < count; ++i) room[i] = p[i];
    return load(room);
}
CAIRN_INLINE void store(bfloat16* p, const vec<float>& v, index_t count) {
    if (count >= lanes<float>) return simd::round_to<register_bytes>(p, v);
    bfloat16 room[lanes<float>];
    simd::round_to<register_bytes>(room, v);
    for (index_t i = 0; i < count; ++i) p[i] = room[i];
}
CAIRN_INLINE void stream(bfloat16* p, const vec<float>& v) {
#if defined(__AVX512F__)
    bfloat16 room[lanes<float>];
    simd::round_to<register_bytes>(room, v);
    __m256i all;
    std::memcpy(&all, room, sizeof room);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(p), all);
#else
    simd::round_to<register_bytes>(p, v);
#endif
}

/// One step of transpose(): exchanges the off-diagonal blocks of size S between rows a and b, which are S apart.
template <index_t S, class T, std::size_t... L>
CAIRN_INLINE void exchange_blocks(vec<T>& a, vec<T>& b, std::index_sequence<L...>) {
    constexpr index_t w = lanes<T>;
    const vec<T> a0 = a, b0 = b;
#if defined(__CUDACC__)  // whose front end does not expand packs here
    for (index_t l = 0; l < w; ++l) {
        a[l] = (l & S) ? b0[l - S] : a0[l];
        b[l] = (l & S) ? b0[l] : a0[l + S];
    }
#else
    a = __builtin_shufflevector(a0, b0, ((index_t(L) & S) ? w + index_t(L) - S : index_t(L))...);
    b = __builtin_shufflevector(a0, b0, ((index_t(L) & S) ? w + index_t(L) : index_t(L) + S)...);
#endif
}

/// Transposes a square of lanes x lanes elements in place.
template <class T, index_t S = lanes<T> / 2>
CAIRN_INLINE void transpose(vec<T> (&rows)[lanes<T>]) {
    if constexpr (S > 0) {
        for (index_t i = 0; i < lanes<T>; ++i)
            if (!(i & S))
                exchange_blocks<S, T>(rows[i], rows[i + S], std::make_index_sequence<std::size_t(lanes<T>)>{});
        transpose<T, S / 2>(rows);
    }
}

}  // namespace cairn::winograd
