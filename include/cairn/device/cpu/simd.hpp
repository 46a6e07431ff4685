#pragma once
// A pack: 64 bytes of lanes, whatever the width of the target's registers (one AVX-512, two AVX, four SSE registers),
// through the vector extension that g++ and clang share. Results do not depend on the width: only the number of
// registers differs. For loops that `#pragma omp simd` cannot express: one bit per lane, reductions that keep their
// order, kernels that want their values in registers.

#include <cairn/core/shape.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace cairn::simd {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
#define CAIRN_SIMD_AVX512 1
inline constexpr int register_bytes = 64;
#elif defined(__AVX2__)
inline constexpr int register_bytes = 32;
#else
inline constexpr int register_bytes = 16;
#endif

inline constexpr int pack_bytes = 64;
inline constexpr int parts = pack_bytes / register_bytes;

/// Lanes of a pack of T.
template <class T>
inline constexpr int lanes = pack_bytes / static_cast<int>(sizeof(T));

template <class T, int bytes = register_bytes>
struct register_of {
    typedef T type __attribute__((vector_size(bytes)));
};

/// The integer as wide as T.
template <class T>
using integer_of = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// Bits of the lanes of a pack, lane i in bit i.
template <class T>
using lane_bits = std::conditional_t<sizeof(T) == 4, std::uint16_t, std::uint8_t>;

/// Bytes of the bits of n elements, whole packs of them.
template <class T>
constexpr index_t mask_bytes(index_t n) {
    return (n + lanes<T> - 1) / lanes<T> * static_cast<index_t>(sizeof(lane_bits<T>));
}

template <class T>
struct pack {
    using native = typename register_of<T>::type;
    native part[parts];

    pack() = default;
    [[gnu::always_inline]] pack(T value) {
        for (native& p : part) p = native{} + value;
    }

#define CAIRN_PACK_OPERATOR(op)                                                    \
    [[gnu::always_inline]] friend pack operator op(const pack& a, const pack& b) { \
        pack c;                                                                    \
        for (int i = 0; i < parts; ++i) c.part[i] = a.part[i] op b.part[i];        \
        return c;                                                                  \
    }
    CAIRN_PACK_OPERATOR(+)
    CAIRN_PACK_OPERATOR(-)
    CAIRN_PACK_OPERATOR(*)
    CAIRN_PACK_OPERATOR(/)
#undef CAIRN_PACK_OPERATOR
    [[gnu::always_inline]] pack& operator+=(const pack& b) { return *this = *this + b; }
    [[gnu::always_inline]] pack& operator-=(const pack& b) { return *this = *this - b; }
    [[gnu::always_inline]] pack& operator*=(const pack& b) { return *this = *this * b; }
};

/// What a comparison of packs of T gives: a bit or a lane of ones for true, as the target likes it.
template <class T>
struct mask {
#if CAIRN_SIMD_AVX512
    lane_bits<T> bits;
#else
    typename register_of<integer_of<T>>::type part[parts];
#endif
};

/// The 64 bytes at p, which need no alignment.
template <class T>
[[gnu::always_inline]] inline pack<T> load(const T* p) {
    pack<T> v;
    std::memcpy(v.part, p, sizeof v.part);
    return v;
}

template <class T>
[[gnu::always_inline]] inline void store(T* p, const pack<T>& v) {
    std::memcpy(p, v.part, sizeof v.part);
}

/// The first `count` < lanes elements at p, zeros in the other lanes. Touches nothing beyond them.
template <class T>
[[gnu::always_inline]] inline pack<T> load(const T* p, index_t count) {
    pack<T> v;
#if CAIRN_SIMD_AVX512
    const auto m = static_cast<lane_bits<T>>((1u << count) - 1u);
    if constexpr (std::is_same_v<T, float>)
        v.part[0] = _mm512_maskz_loadu_ps(m, p);
    else
        v.part[0] = _mm512_maskz_loadu_pd(m, p);
#else
    T buffer[lanes<T>] = {};
    for (index_t i = 0; i < count; ++i) buffer[i] = p[i];
    std::memcpy(v.part, buffer, sizeof buffer);
#endif
    return v;
}

template <class T>
[[gnu::always_inline]] inline void store(T* p, const pack<T>& v, index_t count) {
#if CAIRN_SIMD_AVX512
    const auto m = static_cast<lane_bits<T>>((1u << count) - 1u);
    if constexpr (std::is_same_v<T, float>)
        _mm512_mask_storeu_ps(p, m, v.part[0]);
    else
        _mm512_mask_storeu_pd(p, m, v.part[0]);
#else
    T buffer[lanes<T>];
    std::memcpy(buffer, v.part, sizeof buffer);
    for (index_t i = 0; i < count; ++i) p[i] = buffer[i];
#endif
}

/// A comparison lane by lane: x86's predicate of that number, or what `native` makes of two registers elsewhere.
template <int Predicate, class T, class Native>
[[gnu::always_inline]] inline mask<T> compare(const pack<T>& a, const pack<T>& b, [[maybe_unused]] Native&& native) {
    mask<T> m;
#if CAIRN_SIMD_AVX512
    if constexpr (std::is_same_v<T, float>)
        m.bits = _mm512_cmp_ps_mask(a.part[0], b.part[0], Predicate);
    else
        m.bits = _mm512_cmp_pd_mask(a.part[0], b.part[0], Predicate);
#else
    for (int i = 0; i < parts; ++i) m.part[i] = native(a.part[i], b.part[i]);
#endif
    return m;
}

/// a > b; false where either is NaN.
template <class T>
[[gnu::always_inline]] inline mask<T> greater(const pack<T>& a, const pack<T>& b) {
    return compare<0x1e>(a, b, [](auto x, auto y) { return x > y; });  // _CMP_GT_OQ
}

/// not (a ≤ b): true where either is NaN.
template <class T>
[[gnu::always_inline]] inline mask<T> not_less_equal(const pack<T>& a, const pack<T>& b) {
    return compare<0x16>(a, b, [](auto x, auto y) { return ~(x <= y); });  // _CMP_NLE_UQ
}

/// Whether a lane is NaN.
template <class T>
[[gnu::always_inline]] inline mask<T> unordered(const pack<T>& a) {
    return compare<0x03>(a, a, [](auto x, auto y) { return x != y; });  // _CMP_UNORD_Q
}

/// a = b.
template <class T>
[[gnu::always_inline]] inline mask<T> equal(const pack<T>& a, const pack<T>& b) {
    return compare<0x00>(a, b, [](auto x, auto y) { return x == y; });  // _CMP_EQ_OQ
}

/// a or b, lane by lane.
template <class T>
[[gnu::always_inline]] inline mask<T> either(const mask<T>& a, const mask<T>& b) {
    mask<T> m;
#if CAIRN_SIMD_AVX512
    m.bits = static_cast<lane_bits<T>>(a.bits | b.bits);
#else
    for (int i = 0; i < parts; ++i) m.part[i] = a.part[i] | b.part[i];
#endif
    return m;
}

/// m ? a : b, lane by lane.
template <class T>
[[gnu::always_inline]] inline pack<T> select(const mask<T>& m, const pack<T>& a, const pack<T>& b) {
    pack<T> c;
#if CAIRN_SIMD_AVX512
    if constexpr (std::is_same_v<T, float>)
        c.part[0] = _mm512_mask_blend_ps(m.bits, b.part[0], a.part[0]);
    else
        c.part[0] = _mm512_mask_blend_pd(m.bits, b.part[0], a.part[0]);
#else
    for (int i = 0; i < parts; ++i) c.part[i] = m.part[i] ? a.part[i] : b.part[i];
#endif
    return c;
}

/// a where b is true, zero elsewhere.
template <class T>
[[gnu::always_inline]] inline pack<T> keep(const mask<T>& m, const pack<T>& a) {
#if CAIRN_SIMD_AVX512
    pack<T> c;
    if constexpr (std::is_same_v<T, float>)
        c.part[0] = _mm512_maskz_mov_ps(m.bits, a.part[0]);
    else
        c.part[0] = _mm512_maskz_mov_pd(m.bits, a.part[0]);
    return c;
#else
    pack<T> c;
    using whole = typename register_of<integer_of<T>>::type;
    for (int i = 0; i < parts; ++i)
        c.part[i] = reinterpret_cast<typename pack<T>::native>(reinterpret_cast<whole>(a.part[i]) & m.part[i]);
    return c;
#endif
}

/// The mask as bits, lane i in bit i.
template <class T>
[[gnu::always_inline]] inline lane_bits<T> to_bits(const mask<T>& m) {
#if CAIRN_SIMD_AVX512
    return m.bits;
#else
    unsigned bits = 0;
    constexpr int width = lanes<T> / parts;
    for (int i = 0; i < parts; ++i) {
#if defined(__AVX2__)
        if constexpr (sizeof(T) == 4)
            bits |= static_cast<unsigned>(_mm256_movemask_ps(std::bit_cast<__m256>(m.part[i]))) << (i * width);
        else
            bits |= static_cast<unsigned>(_mm256_movemask_pd(std::bit_cast<__m256d>(m.part[i]))) << (i * width);
#elif defined(__SSE2__)
        if constexpr (sizeof(T) == 4)
            bits |= static_cast<unsigned>(_mm_movemask_ps(std::bit_cast<__m128>(m.part[i]))) << (i * width);
        else
            bits |= static_cast<unsigned>(_mm_movemask_pd(std::bit_cast<__m128d>(m.part[i]))) << (i * width);
#else
        for (int j = 0; j < width; ++j) bits |= (m.part[i][j] ? 1u : 0u) << (i * width + j);
#endif
    }
    return static_cast<lane_bits<T>>(bits);
#endif
}

/// The mask that to_bits made `bits` of.
template <class T>
[[gnu::always_inline]] inline mask<T> from_bits(lane_bits<T> bits) {
    mask<T> m;
#if CAIRN_SIMD_AVX512
    m.bits = bits;
#else
    using whole = typename register_of<integer_of<T>>::type;
    constexpr int width = lanes<T> / parts;
    for (int i = 0; i < parts; ++i) {
        whole own;
        for (int j = 0; j < width; ++j) own[j] = integer_of<T>{1} << (i * width + j);
        m.part[i] = ((whole{} + static_cast<integer_of<T>>(bits)) & own) != 0;
    }
#endif
    return m;
}

/// Writes the mask to sizeof(lane_bits<T>) bytes at p.
template <class T>
[[gnu::always_inline]] inline void store_bits(std::uint8_t* p, const mask<T>& m) {
    const lane_bits<T> bits = to_bits(m);
    std::memcpy(p, &bits, sizeof bits);
}

template <class T>
[[gnu::always_inline]] inline mask<T> load_bits(const std::uint8_t* p) {
    lane_bits<T> bits;
    std::memcpy(&bits, p, sizeof bits);
    return from_bits<T>(bits);
}

/// The larger of two lanes; b where either is NaN.
template <class T>
[[gnu::always_inline]] inline pack<T> max(const pack<T>& a, const pack<T>& b) {
    return select(greater(a, b), a, b);
}

/// Calls body(i, count) for the packs of n elements: `count` is a compile-time constant, lanes<T>, for all but the
/// last, shorter one.
template <class T, class Body>
[[gnu::always_inline]] inline void for_packs(index_t n, Body&& body) {
    index_t i = 0;
    for (; i + lanes<T> <= n; i += lanes<T>) body(i, std::integral_constant<index_t, lanes<T>>{});
    if (i < n) body(i, n - i);
}

/// load and store of all lanes where the count is the compile-time constant of for_packs.
template <class T, index_t N>
[[gnu::always_inline]] inline pack<T> load(const T* p, std::integral_constant<index_t, N>) {
    return load(p);
}
template <class T, index_t N>
[[gnu::always_inline]] inline void store(T* p, const pack<T>& v, std::integral_constant<index_t, N>) {
    store(p, v);
}

/// Both halves of a pack of floats as packs of doubles.
struct double_packs {
    pack<double> low, high;
};
[[gnu::always_inline]] inline double_packs widen(const pack<float>& v) {
    float f[lanes<float>];
    store(f, v);
    double_packs d;
    using half = float __attribute__((vector_size(register_bytes / 2)));
    for (int i = 0; i < parts; ++i) {
        half low, high;
        constexpr int n = lanes<double> / parts;
        std::memcpy(&low, f + i * n, sizeof low);
        std::memcpy(&high, f + lanes<double> + i * n, sizeof high);
        d.low.part[i] = __builtin_convertvector(low, pack<double>::native);
        d.high.part[i] = __builtin_convertvector(high, pack<double>::native);
    }
    return d;
}

/// f of all lanes, halves first: f(f(0, 8), f(4, 12)) … , the same order on every target.
template <class T, class F>
[[gnu::always_inline]] inline T fold(const pack<T>& v, F f) {
    T lane[lanes<T>];
    store(lane, v);
    for (int half = lanes<T> / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] = f(lane[i], lane[i + half]);
    return lane[0];
}

/// The sum of all lanes.
template <class T>
[[gnu::always_inline]] inline T sum(const pack<T>& v) {
    return fold(v, [](T a, T b) { return a + b; });
}

}  // namespace cairn::simd
