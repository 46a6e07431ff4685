#pragma once
// A register of floats from bfloat16 in memory, and back. Rounding is that of the scalar bfloat16 (to nearest, ties to
// even, NaN stays NaN), by integers: the same bits on every instruction set, also where AVX512-BF16 has a conversion of
// its own, which makes zeros of the smallest numbers.

#include <cairn/core/bfloat16.hpp>

#include <cstring>

namespace cairn::simd {

/// `bytes` of floats, and as many lanes of integers.
template <int bytes>
struct register_of_floats {
    typedef float floats __attribute__((vector_size(bytes)));
    typedef std::uint32_t words __attribute__((vector_size(bytes)));
    typedef std::uint16_t halves __attribute__((vector_size(bytes / 2)));
};

template <int bytes>
[[gnu::always_inline]] inline typename register_of_floats<bytes>::floats widen(const bfloat16* p) {
    using of = register_of_floats<bytes>;
    typename of::halves stored;
    std::memcpy(&stored, p, sizeof stored);
    const typename of::words wide = __builtin_convertvector(stored, typename of::words) << 16;
    return reinterpret_cast<typename of::floats>(wide);
}

template <int bytes>
[[gnu::always_inline]] inline void round_to(bfloat16* p, const typename register_of_floats<bytes>::floats& v) {
    using of = register_of_floats<bytes>;
    const auto wide = reinterpret_cast<typename of::words>(v);
    const typename of::words rounded = (wide + (((wide >> 16) & 1u) + 0x7fffu)) >> 16, of_nan = (wide >> 16) | 0x40u;
    const typename of::halves stored = __builtin_convertvector(v != v ? of_nan : rounded, typename of::halves);
    std::memcpy(static_cast<void*>(p), &stored, sizeof stored);
}

}  // namespace cairn::simd
