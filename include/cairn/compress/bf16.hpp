#pragma once
// bfloat16: the upper half of a float, 8 exponent and 7 fraction bits. Half the bytes, the whole range: the compressor
// that costs nothing to try. Relative error at most 2^-8 for normal values.
//   nearest     x̂ = x rounded to 8 significant bits, ties to even
//   stochastic  bits of x + 16 random bits, lower half cut off: E x̂ = x exactly
// NaN and Inf pass through; finite values within ½ (stochastic: one) unit of 2^128 become Inf.
// Bits: device/codes.hpp; wire format, sums and traffic: cast.hpp. Tested against core/bfloat16.hpp and the definition
// of rounding.

#include <cairn/compress/cast.hpp>

namespace cairn {

template <Device D = cpu>
struct bf16 : codec<nearest_cast<bf16_format>, D> {};
template <Device D = cpu>
struct bf16_stochastic : codec<stochastic_cast<bf16_format>, D> {};

}  // namespace cairn
