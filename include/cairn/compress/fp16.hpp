#pragma once
// IEEE half precision: 5 exponent and 10 fraction bits. Eight times finer than bf16 between 2^-14 and 65504, but
// gradients
// below 2^-24 vanish: combine with error feedback, or scale the loss.
//   nearest     ties to even; multiples of 2^-24 below 2^-14
//   stochastic  up with the probability that keeps the mean, to 2^-17 of a unit below 2^-14 and exactly above
// |x − x̂| ≤ max(2^-11 |x|, 2^-25) to nearest, twice that at random. NaN and Inf pass through; finite values beyond
// 65504 become ±65504, so that one large value does not make the sum over ranks infinite by itself.
// Wire format, sums and traffic: cast.hpp; bits: core/float16.hpp, which overflows to infinity instead. Tested against
// every one of the 65,536 halves and the definition of rounding.

#include <cairn/compress/cast.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/host_device.hpp>

#include <bit>

namespace cairn {

struct fp16_format {
    static constexpr const char* name = "fp16";
    static constexpr summand type = summand::float16;
    static constexpr double contraction = 0;  // nothing is left of tiny values, which may also become one unit
    static constexpr double variance = std::numeric_limits<double>::infinity();

    CAIRN_HD static std::uint16_t nearest(float x) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        return half_bits::nearest(wide, limited(wide & 0x7fffffffu));
    }
    CAIRN_HD static std::uint16_t stochastic(float x, std::uint32_t r) {
        const auto wide = std::bit_cast<std::uint32_t>(x);
        const std::uint32_t a = limited(wide & 0x7fffffffu);
        const std::uint32_t normal = capped((a - rebias + (r & 0x1fffu)) >> 13);
        const std::uint32_t is_tiny = below(a, smallest_normal);
        const float units = std::bit_cast<float>(a & is_tiny) * 0x1p24f;  // < 2^10
        const float u = (static_cast<float>(static_cast<std::int32_t>(r)) + 0.5f) * 0x1p-16f;
        const auto tiny = static_cast<std::uint32_t>(static_cast<std::int32_t>(units + u));
        return finish(wide, a, (tiny & is_tiny) | (normal & ~is_tiny));
    }
    CAIRN_HD static float widen(std::uint16_t h) { return half_bits::widened(h); }

private:
    static constexpr std::uint32_t rebias = half_bits::rebias, smallest_normal = half_bits::smallest_normal;
    static constexpr std::uint32_t largest = 0x477fe000u;  // 65504

    CAIRN_HD static std::uint32_t below(std::uint32_t a, std::uint32_t b) { return half_bits::below(a, b); }
    CAIRN_HD static std::uint32_t capped(std::uint32_t h) { return h < 0x7bffu ? h : 0x7bffu; }
    CAIRN_HD static std::uint32_t limited(std::uint32_t a) {
        const std::uint32_t too_large = below(largest, a) & below(a, 0x7f800000u);
        return (largest & too_large) | (a & ~too_large);
    }
    CAIRN_HD static std::uint16_t finish(std::uint32_t wide, std::uint32_t a, std::uint32_t h) {
        const std::uint32_t is_number = below(a, 0x7f800000u);
        const std::uint32_t special = (0x7c00u | (below(0x7f800000u, a) & 0x200u)) & ~is_number;
        return static_cast<std::uint16_t>(special | (h & is_number) | ((wide >> 16) & 0x8000u));
    }
};

using fp16 = nearest_cast<fp16_format>;
using fp16_stochastic = stochastic_cast<fp16_format>;

}  // namespace cairn
