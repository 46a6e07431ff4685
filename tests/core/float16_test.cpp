#include "catch.hpp"

#include <cairn/core/float16.hpp>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

using cairn::float16;

namespace {

float16 half_of_bits(std::uint32_t bits) {
    float16 h;
    h.bits = static_cast<std::uint16_t>(bits);
    return h;
}

// The value of a half by the standard's text.
double value_of(std::uint32_t bits) {
    const int exponent = (bits >> 10) & 31, fraction = bits & 1023;
    const double sign = bits & 0x8000u ? -1 : 1;
    if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    return exponent ? sign * std::ldexp(1024 + fraction, exponent - 25) : sign * std::ldexp(fraction, -24);
}

// Rounding by definition, in double: a multiple of the unit of x's binade, or of 2^-24.
double rounded(double x) {
    if (x == 0 || !std::isfinite(x)) return x;
    const int unit = std::max(std::ilogb(x) - 10, -24);
    const double r = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
    return std::abs(r) > 65504 ? std::copysign(std::numeric_limits<double>::infinity(), x) : r;
}

}  // namespace

TEST_CASE("float16: each of its 65,536 values is the standard's and survives the way to float and back", "[float16]") {
    for (std::uint32_t bits = 0; bits < 0x10000u; ++bits) {
        const float wide = half_of_bits(bits);
        const double expected = value_of(bits);
        const float16 back(wide);
        if (std::isnan(expected)) {
            if (!std::isnan(wide) || !std::isnan(static_cast<float>(back))) FAIL("NaN lost: " << bits);
            if ((back.bits & 0x8000u) != (bits & 0x8000u)) FAIL("sign of a NaN lost: " << bits);
        } else {
            if (static_cast<double>(wide) != expected) FAIL("bits " << bits << " are " << wide << ", not " << expected);
            if (std::signbit(wide) != ((bits & 0x8000u) != 0)) FAIL("sign of " << bits);
            if (back.bits != bits) FAIL("bits " << bits << " came back as " << back.bits);
        }
    }
    SUCCEED();
}

TEST_CASE("float16: between any two neighbours the nearest is taken, in the middle the even one", "[float16]") {
    for (std::uint32_t lo = 0; lo < 0x7c00u; ++lo) {  // up to the largest, whose neighbour would be 65536
        const double above = lo == 0x7bffu ? 65536 : value_of(lo + 1);
        const auto middle = static_cast<float>((value_of(lo) + above) / 2);  // exact: one more digit
        const auto even = static_cast<std::uint16_t>(lo % 2 ? lo + 1 : lo);
        const float before = std::nextafter(middle, 0.0f), after = std::nextafter(middle, 1e9f);
        if (float16(middle).bits != even || float16(before).bits != lo || float16(after).bits != lo + 1)
            FAIL("around " << middle);
        if (float16(-middle).bits != (even | 0x8000u) || float16(-before).bits != (lo | 0x8000u) ||
            float16(-after).bits != ((lo + 1) | 0x8000u))
            FAIL("around " << -middle);
    }
    SUCCEED();
}

TEST_CASE("float16: floats of all sizes round as defined", "[float16]") {
    for (std::uint64_t i = 0; i < 0x100000000u; i += 4099) {
        const auto x = std::bit_cast<float>(static_cast<std::uint32_t>(i));
        const float got = float16(x);
        if (std::isnan(x) ? !std::isnan(got) : static_cast<double>(got) != rounded(x)) FAIL(x << " became " << got);
        if (std::signbit(got) != std::signbit(x)) FAIL("sign of " << x);
    }
    SUCCEED();
}

TEST_CASE("float16: the ends of its range", "[float16]") {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    CHECK(static_cast<float>(float16(65504.0f)) == 65504.0f);
    CHECK(static_cast<float>(float16(65519.996f)) == 65504.0f);
    CHECK(static_cast<float>(float16(65520.0f)) == infinity);
    CHECK(static_cast<float>(float16(-65520.0f)) == -infinity);
    CHECK(static_cast<float>(float16(std::numeric_limits<float>::max())) == infinity);
    CHECK(float16(-infinity).bits == 0xfc00u);
    CHECK(float16(0x1p-24f).bits == 1);
    CHECK(float16(0x1p-25f).bits == 0);
    CHECK(float16(0x1.000002p-25f).bits == 1);
    CHECK(float16(-0x1p-25f).bits == 0x8000u);
    CHECK(float16(0x1.ffep-15f).bits == 0x0400u);  // the largest subnormal and half a unit
    for (const std::uint32_t wide : {0x7f800001u, 0x7f80ffffu, 0x7fffffffu, 0xff800001u, 0xffffffffu})
        CHECK(std::isnan(static_cast<float>(float16(std::bit_cast<float>(wide)))));
    static_assert(float16(1.5f).bits == 0x3e00u);
}

TEST_CASE("float16: updates happen in float and round once", "[float16]") {
    float16 h(1.0f);
    h += 0x1p-11f;  // half a unit: to even
    CHECK(static_cast<float>(h) == 1.0f);
    h += 0x1.8p-11f;
    CHECK(static_cast<float>(h) == 1.0f + 0x1p-10f);
    h -= 1.0f;
    CHECK(static_cast<float>(h) == 0x1p-10f);
    h *= 0x1p-15f;  // 2^-25: half the smallest one
    CHECK(h.bits == 0);
}
