#pragma once
// IEEE half precision: 5 exponent and 10 fraction bits. Eight times finer than bf16 between 2^-14 and 65504, but
// gradients below 2^-24 vanish: combine with error feedback, or scale the loss.
//   nearest     ties to even; multiples of 2^-24 below 2^-14
//   stochastic  up with the probability that keeps the mean, to 2^-17 of a unit below 2^-14 and exactly above
// |x − x̂| ≤ max(2^-11 |x|, 2^-25) to nearest, twice that at random. NaN and Inf pass through; finite values beyond
// 65504 become ±65504, so that one large value does not make the sum over ranks infinite by itself.
// Bits: device/codes.hpp; wire format, sums and traffic: cast.hpp; core/float16.hpp overflows to infinity instead.
// Tested against every one of the 65,536 halves and the definition of rounding.

#include <cairn/compress/cast.hpp>

namespace cairn {

template <Device D = cpu>
struct fp16 : codec<nearest_cast<fp16_format>, D> {};
template <Device D = cpu>
struct fp16_stochastic : codec<stochastic_cast<fp16_format>, D> {};

}  // namespace cairn
