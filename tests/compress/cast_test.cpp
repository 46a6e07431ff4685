#include "compress/compressor_laws.hpp"

#include <cairn/compress/bf16.hpp>
#include <cairn/compress/fp16.hpp>
#include <cairn/core/bfloat16.hpp>

namespace laws {

namespace {

// The value of a half by the standard's text.
double value_of_half(std::uint16_t h) {
    const int exponent = (h >> 10) & 31, fraction = h & 1023;
    const double sign = h & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    return exponent ? sign * std::ldexp(1024 + fraction, exponent - 25) : sign * std::ldexp(fraction, -24);
}

// Rounding by definition: units of the last place of a format with `digits` significant bits and a smallest unit.
double rounded(double x, int digits, int smallest) {
    if (x == 0) return x;
    const int unit = std::max(std::ilogb(x) - digits + 1, smallest);
    return std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
}

floats awkward() {
    floats x = numbers("heavy tail", 4000);
    const random_stream random{3, 4, 5};
    for (std::uint64_t i = 0; i < 20000; ++i) {
        const auto v = std::bit_cast<float>(random.bits(i));
        if (std::isfinite(v)) x.push_back(v);
    }
    for (float v : {0.0f, -0.0f, 1e-45f, 1e-38f, 65504.0f, 65519.0f, 65520.0f, 1e30f, -7e4f, 0x1p-24f, 0x1.8p-24f,
                    0x1p-25f, 0x1.000002p-25f, 0x1p-14f, 0x1.ffcp-15f, 0x1.ffep-15f, 1.0009765625f, 1.00048828125f})
        x.push_back(v);
    return x;
}

// Messages added as the arrays that they are.
template <class Format>
void check_sum_of_messages() {
    const index_t n = 1000;
    const floats x = numbers("normal", n), y = numbers("ramp", n, 2);
    codec<nearest_cast<Format>, cpu> c;
    const auto a = encoded(c, x), b = encoded(c, y);
    std::vector<std::byte> sum(a.size());
    floats exact(x.size());
    const floats dx = decoded(c, a, n), dy = decoded(c, b, n);
    for (std::size_t i = 0; i < x.size(); ++i) {
        exact[i] = Format::widen(Format::nearest(dx[i] + dy[i]));
        std::uint16_t h[2];
        std::memcpy(&h[0], &a[2 * i], 2);
        std::memcpy(&h[1], &b[2 * i], 2);
        const std::uint16_t s = Format::nearest(Format::widen(h[0]) + Format::widen(h[1]));
        std::memcpy(&sum[2 * i], &s, 2);
    }
    REQUIRE(decoded(c, sum, n) == exact);
}

}  // namespace

TEST_CASE("casts keep the contract laws", "[cast]") {
    check_values([] { return bf16(); });
    check_values([] { return fp16(); });
    check_values([] { return bf16_stochastic(); });
    check_values([] { return fp16_stochastic(); });
    check_damage([] { return bf16(); });
    check_damage([] { return fp16_stochastic(); });
    REQUIRE(bf16().contract(5).summable == summand::bfloat16);
    REQUIRE(fp16().contract(5).summable == summand::float16);
    REQUIRE(bf16().max_bytes(1001) == 2002);
}

TEST_CASE("bf16 rounds as core's bfloat16", "[cast]") {
    const floats x = awkward();
    bf16 c;
    const floats y = decoded(c, encoded(c, x), static_cast<index_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(i, x[i]);
        REQUIRE(y[i] == static_cast<float>(bfloat16(x[i])));
        if (std::abs(x[i]) < 3e38f) REQUIRE(double{y[i]} == rounded(x[i], 8, -133));
    }
}

TEST_CASE("fp16 knows every half and rounds to the nearest", "[cast]") {
    for (unsigned h = 0; h < 65536; ++h) {
        const auto bits = static_cast<std::uint16_t>(h);
        const float wide = fp16_format::widen(bits);
        const double expected = value_of_half(bits);
        if (std::isnan(expected)) {
            REQUIRE(std::isnan(wide));
            REQUIRE(std::isnan(fp16_format::widen(fp16_format::nearest(wide))));
            continue;
        }
        REQUIRE(double{wide} == expected);
        REQUIRE(fp16_format::nearest(wide) == bits);
        if (std::isfinite(expected)) REQUIRE(fp16_format::stochastic(wide, h * 40503u & 0xffffu) == bits);
    }
    const floats x = awkward();
    fp16 c;
    const floats y = decoded(c, encoded(c, x), static_cast<index_t>(x.size()));
    for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(i, x[i]);
        REQUIRE(double{y[i]} == std::clamp(rounded(x[i], 11, -24), -65504.0, 65504.0));
    }
}

TEST_CASE("casts at random give one of the two neighbours, with the right mean", "[cast]") {
    check_unbiased([] { return bf16_stochastic(); });
    check_unbiased([] { return fp16_stochastic(); });
    const floats x = awkward();
    const index_t n = static_cast<index_t>(x.size());
    fp16_stochastic c;
    const floats y = decoded(c, encoded(c, x), n);
    for (std::size_t i = 0; i < x.size(); ++i) {
        CAPTURE(i, x[i]);
        const double limited = std::clamp<double>(x[i], -65504.0, 65504.0);
        REQUIRE(std::abs(y[i] - limited) <= std::max(0x1p-10 * std::abs(limited), 0x1p-24));
    }
    // Means of halves below the smallest normal one, where the rule is another.
    const floats tiny(64, 0x1.4p-23f * 0.3f);
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed)
        for (float v : decoded(c, encoded(c, tiny, {.seed = seed}), 64)) sum += v;
    CHECK(std::abs(sum / (300 * 64) / tiny[0] - 1) < 6 / std::sqrt(300.0 * 64));
}

TEST_CASE("casts: randomness is Philox's, by the formula of random_bits.hpp", "[cast]") {
    const index_t n = 300;
    const floats x = numbers("normal", n);
    bf16_stochastic c;
    const encode_step at{.seed = 9, .rank = 3, .step = 4, .bucket = 2};
    const auto bytes = encoded(c, x, at);
    const random_stream random = at.own_random("bf16");
    for (index_t i = 0; i < n; ++i) {
        const index_t g = i / 128, j = i % 128;
        const std::uint32_t word =
            random.bits4(static_cast<std::uint64_t>(16 * g + j % 16))[static_cast<std::size_t>(j / 32)];
        const std::uint32_t r = j / 16 % 2 ? word >> 16 : word & 0xffffu;
        const auto expected =
            static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x[static_cast<std::size_t>(i)]) + r) >> 16);
        std::uint16_t got;
        std::memcpy(&got, &bytes[static_cast<std::size_t>(2 * i)], 2);
        REQUIRE(got == expected);
    }
}

TEST_CASE("casts: sums of messages are messages of sums", "[cast]") {
    check_sum_of_messages<bf16_format>();
    check_sum_of_messages<fp16_format>();
}

TEST_CASE("casts pass NaN and Inf on", "[cast]") {
    const float inf = std::numeric_limits<float>::infinity();
    const floats x{std::nanf(""), inf, -inf, std::bit_cast<float>(0x7f800001u)};
    const auto check = [&](auto c) {
        const floats y = decoded(c, encoded(c, x), 4);
        CHECK((std::isnan(y[0]) && y[1] == inf && y[2] == -inf && std::isnan(y[3])));
    };
    check(bf16{});
    check(fp16{});
    check(bf16_stochastic{});
    check(fp16_stochastic{});
}

}  // namespace laws
