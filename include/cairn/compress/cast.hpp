#pragma once
// Compressors that round each value to a 16-bit format: bf16.hpp and fp16.hpp. A format (device/codes.hpp) is
//   name, type (a summand)
//   nearest(x)        its 16 bits, to nearest, ties to even
//   stochastic(x, r)  rounded up with the probability that keeps the mean, from 16 random bits r
//   widen(h)          back to float, exact
//   contraction       δ of the contract, for values in its normal range
//
// Wire: n × 2 bytes. Memory traffic: encode 4 + 2, decode 2 + 4 bytes a value.
// NaN and Inf pass through, and finite values at the end of the format's range round as the format's file says.

#include <cairn/compress/codec.hpp>

namespace cairn {

/// Rounds to nearest, ties to even. Messages may be added in the format itself.
template <class Format>
struct nearest_cast : nearest_rounding<Format> {
    static std::string name() { return Format::name; }
    static std::string_view stream() { return Format::name; }
    static compression_contract contract(index_t) {
        return {.summable = Format::type, .contraction = Format::contraction};
    }
};

/// Rounds up or down at random: unbiased, so that small contributions to a sum are not lost.
template <class Format>
struct stochastic_cast : stochastic_rounding<Format> {
    static std::string name() { return std::string(Format::name) + "_stochastic"; }
    static std::string_view stream() { return Format::name; }
    static compression_contract contract(index_t) {
        return {.unbiased = true,
                .deterministic = false,
                .summable = Format::type,
                .contraction = 1 - Format::variance,
                .variance = Format::variance};
    }
};

}  // namespace cairn
