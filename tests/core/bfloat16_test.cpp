#include "catch.hpp"

#include <cairn/core/bfloat16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using cairn::bfloat16;

namespace {

bfloat16 from_bits(std::uint32_t bits) {
    bfloat16 b;
    b.bits = static_cast<std::uint16_t>(bits);
    return b;
}

bool is_nan_bits(std::uint32_t bits) { return (bits & 0x7f80u) == 0x7f80u && (bits & 0x7fu) != 0; }

}  // namespace

TEST_CASE("bfloat16: each of its 65,536 values survives the way to float and back", "[bfloat16]") {
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
        const float wide = from_bits(bits);
        const bfloat16 back(wide);
        if (is_nan_bits(bits)) {
            if (!std::isnan(wide) || !std::isnan(static_cast<float>(back))) FAIL("NaN lost: " << bits);
            if ((back.bits & 0x8000u) != (bits & 0x8000u)) FAIL("sign of a NaN lost: " << bits);
        } else if (back.bits != bits) {
            FAIL("bits " << bits << " came back as " << back.bits);
        }
    }
    SUCCEED();
}

TEST_CASE("bfloat16: conversion takes the nearest value, of two equally near ones the even", "[bfloat16]") {
    // Between neighbours lo and hi = lo + 1 ulp of bfloat16: 2^16 floats, the tie in the middle.
    for (const std::uint32_t lo : {0x3f80u, 0x3f81u, 0x0000u, 0x0001u, 0x7f7eu, 0xbf80u, 0xbf81u, 0x4049u, 0x007fu}) {
        const auto to_bits = [](std::uint32_t wide) { return bfloat16(std::bit_cast<float>(wide)).bits; };
        const std::uint32_t base = lo << 16;
        const auto even = static_cast<std::uint16_t>(lo % 2 ? lo + 1 : lo);
        CHECK(to_bits(base) == lo);
        CHECK(to_bits(base + 1) == lo);
        CHECK(to_bits(base + 0x7fff) == lo);
        CHECK(to_bits(base + 0x8000) == even);
        CHECK(to_bits(base + 0x8001) == lo + 1);
        CHECK(to_bits(base + 0xffff) == lo + 1);
    }
}

TEST_CASE("bfloat16: overflow gives infinity, infinity stays, NaN stays NaN whatever its payload", "[bfloat16]") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    CHECK(static_cast<float>(bfloat16(std::numeric_limits<float>::max())) == infinity);
    CHECK(static_cast<float>(bfloat16(std::numeric_limits<float>::lowest())) == -infinity);
    CHECK(static_cast<float>(bfloat16(infinity)) == infinity);
    CHECK(static_cast<float>(bfloat16(-infinity)) == -infinity);
    // Payload only in the lower half: cutting it off would make an infinity of it; adding a carry might wrap it to
    // zero.
    for (const std::uint32_t wide : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu}) {
        const float nan = std::bit_cast<float>(wide);
        CHECK(std::isnan(static_cast<float>(bfloat16(nan))));
    }
}

TEST_CASE("bfloat16: relative rounding error is at most half a unit in the last place, 2^-8", "[bfloat16]") {
    for (float x = 1e-30f; x < 1e30f; x *= 1.37f) {
        const float rounded = bfloat16(x);
        if (std::abs(rounded - x) > x * 0x1p-8f) FAIL(x << " was rounded to " << rounded);
        if (static_cast<float>(bfloat16(-x)) != -rounded) FAIL("not symmetric at " << x);
    }
    SUCCEED();
}
