#pragma once
// Natural compression (Horváth et al. 2019): each value becomes one of the two powers of two around it, at random such
// that the mean stays: |x| = m 2^e with 1 ≤ m < 2 becomes 2^(e+1) with probability m − 1, else 2^e. So E x̂ = x and
// E(x̂ − x)² ≤ x²/8. In bits (natural_format of device/codes.hpp): add random bits to the fraction, keep the rest.
// Below 2^-126 the same sum gives 0 or 2^-126. Values from 2^127 on become 2^127, there being no 2^128. 16 random bits
// a value: a bias of 2^-17 of the step.
//
// Wire: | ⌈n/8⌉ bytes of signs, as in device/cpu/sign_bits.hpp | n bytes of exponents, biased by 127 |: 9 bits a value.
// State: none. Memory traffic: the bucket once.

#include <cairn/compress/codec.hpp>

namespace cairn {

struct natural_code : natural_format {
    static std::string name() { return "natural"; }
    static std::string_view stream() { return "natural"; }
    static compression_contract contract(index_t) {
        return {.unbiased = true, .deterministic = false, .contraction = 7.0 / 8, .variance = 1.0 / 8};
    }
};

template <Device D = cpu>
struct natural : codec<natural_code, D> {};

}  // namespace cairn
