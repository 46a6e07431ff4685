#pragma once
// bfloat16: the upper half of an IEEE float. Storage type; arithmetic happens in float. A GPU has an instruction that
// rounds.

#include <cairn/core/host_device.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace cairn {

/// 8 exponent bits, 7 fraction bits; conversion from float rounds to nearest, ties to even, and keeps NaN a NaN (on a
/// GPU without its payload).
struct bfloat16 {
    std::uint16_t bits = 0;

    bfloat16() = default;
    CAIRN_HD constexpr bfloat16(float value) {
#if defined(__CUDA_ARCH__)
        if (!std::is_constant_evaluated()) {
            asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
            return;
        }
#endif
        const auto wide = std::bit_cast<std::uint32_t>(value);
        const bool is_nan = (wide & 0x7fffffffu) > 0x7f800000u;
        bits = static_cast<std::uint16_t>(is_nan ? (wide >> 16) | 0x40u : (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16);
    }
    CAIRN_HD constexpr operator float() const { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
    CAIRN_HD constexpr bfloat16& operator+=(float x) { return *this = float{*this} + x; }
    CAIRN_HD constexpr bfloat16& operator-=(float x) { return *this = float{*this} - x; }
    CAIRN_HD constexpr bfloat16& operator*=(float x) { return *this = float{*this} * x; }
};

static_assert(sizeof(bfloat16) == 2);

}  // namespace cairn
