#pragma once
// bfloat16: the upper half of a float, 8 exponent and 7 fraction bits. Half the bytes, the whole range: the compressor
// that costs nothing to try. Relative error at most 2^-8 for normal values.
//   nearest     x̂ = x rounded to 8 significant bits, ties to even
//   stochastic  bits of x + 16 random bits, lower half cut off: E x̂ = x exactly
// NaN and Inf pass through; finite values within ½ (stochastic: one) unit of 2^128 become Inf.
// Wire format, sums and traffic: cast.hpp. Tested against core/bfloat16.hpp and the definition of rounding.

#include <cairn/compress/cast.hpp>
#include <cairn/core/host_device.hpp>

#include <bit>

namespace cairn {

struct bf16_format {
    static constexpr const char* name = "bf16";
    static constexpr summand type = summand::bfloat16;
    static constexpr double contraction = 1 - 0x1p-16;
    static constexpr double variance = 0x1p-16;

    CAIRN_HD static std::uint16_t nearest(float x) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t rounded = (wide + 0x7fffu + ((wide >> 16) & 1u)) >> 16;
        return static_cast<std::uint16_t>(is_nan(wide) ? (wide >> 16) | 0x40u : rounded);
    }
    CAIRN_HD static std::uint16_t stochastic(float x, std::uint32_t r) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        return static_cast<std::uint16_t>(is_nan(wide) ? (wide >> 16) | 0x40u : (wide + r) >> 16);
    }
    CAIRN_HD static float widen(std::uint16_t h) { return std::bit_cast<float>(std::uint32_t{h} << 16); }

private:
    CAIRN_HD static bool is_nan(std::uint32_t wide) { return (wide & 0x7fffffffu) > 0x7f800000u; }
};

using bf16 = nearest_cast<bf16_format>;
using bf16_stochastic = stochastic_cast<bf16_format>;

}  // namespace cairn
