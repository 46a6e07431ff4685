#pragma once
// IEEE half precision, binary16: 5 exponent and 10 fraction bits. Storage type; arithmetic happens in float. Eight
// times finer than bfloat16 between 2^-14 and 65504, in multiples of 2^-24 below, and infinite from 65520 on: gradients
// in it need a scaled loss (train/loss_scaler.hpp). The bit tricks are those of F. Giesen's float-half
// conversions; a GPU has an instruction for each way.
// Tested: every half, and every boundary between two of them, against the definition.

#include <cairn/core/host_device.hpp>

#include <bit>
#include <cstdint>
#include <type_traits>

namespace cairn {

namespace half_bits {

inline constexpr std::uint32_t rebias = (127u - 15u) << 23;           // between the exponents of float and half
inline constexpr std::uint32_t smallest_normal = (127u - 14u) << 23;  // 2^-14, as bits of a float
inline constexpr std::uint32_t infinity = 0x7f800000u;                // likewise

/// All ones if a < b, both below 2^31: arithmetic, because a branch would keep loops from becoming vectors.
CAIRN_HD constexpr std::uint32_t below(std::uint32_t a, std::uint32_t b) {
    return static_cast<std::uint32_t>(static_cast<std::int32_t>(a - b) >> 31);
}

/// The half nearest to the float with the sign of `wide` and the magnitude `a`, both as bits; ties to even.
CAIRN_HD constexpr std::uint16_t nearest(std::uint32_t wide, std::uint32_t a) {
    const std::uint32_t rounded = (a - rebias + 0xfffu + ((a >> 13) & 1u)) >> 13;
    const std::uint32_t normal = rounded < 0x7c00u ? rounded : 0x7c00u;
    // Adding ½ leaves the multiple of 2^-24 in the lowest bits, rounded by the processor.
    const std::uint32_t tiny = std::bit_cast<std::uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
    const std::uint32_t h = (a < smallest_normal ? tiny : normal) | (below(infinity, a) & 0x200u);  // NaN stays one
    return static_cast<std::uint16_t>(h | ((wide >> 16) & 0x8000u));
}

/// Exact.
CAIRN_HD constexpr float widened(std::uint16_t h) {
    const std::uint32_t shifted = (h & 0x7fffu) << 13;
    const std::uint32_t exponent = shifted & 0x0f800000u;
    const std::uint32_t normal = shifted + rebias;
    const std::uint32_t infinite = normal + ((128u - 16u) << 23);
    const float tiny = std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f;
    const std::uint32_t magnitude = exponent == 0             ? std::bit_cast<std::uint32_t>(tiny)
                                    : exponent == 0x0f800000u ? infinite
                                                              : normal;
    return std::bit_cast<float>(magnitude | (static_cast<std::uint32_t>(h) & 0x8000u) << 16);
}

}  // namespace half_bits

/// Conversion from float rounds to nearest, ties to even; beyond 65504 to infinity from half a unit on. NaN stays a
/// NaN, its payload does not.
struct float16 {
    std::uint16_t bits = 0;

    float16() = default;
    CAIRN_HD constexpr float16(float value) {
#if defined(__CUDA_ARCH__)
        if (!std::is_constant_evaluated()) {
            asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
            return;
        }
#endif
        const auto wide = std::bit_cast<std::uint32_t>(value);
        bits = half_bits::nearest(wide, wide & 0x7fffffffu);
    }
    CAIRN_HD constexpr operator float() const {
#if defined(__CUDA_ARCH__)
        if (!std::is_constant_evaluated()) {
            float wide = 0;
            asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
            return wide;
        }
#endif
        return half_bits::widened(bits);
    }
    CAIRN_HD constexpr float16& operator+=(float x) { return *this = float{*this} + x; }
    CAIRN_HD constexpr float16& operator-=(float x) { return *this = float{*this} - x; }
    CAIRN_HD constexpr float16& operator*=(float x) { return *this = float{*this} * x; }
};

static_assert(sizeof(float16) == 2);

}  // namespace cairn
