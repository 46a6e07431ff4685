#include "compress/compressor_laws.hpp"

#include <cairn/compress/natural.hpp>

namespace laws {

TEST_CASE("natural keeps the contract laws", "[natural]") {
    check_laws([] { return natural(); });
}

TEST_CASE("natural is unbiased", "[natural]") {
    check_unbiased([] { return natural(); });
}

TEST_CASE("natural gives one of the two powers of two, by its random bits, in 9 bits a value", "[natural]") {
    for (const index_t n : sizes) {
        const floats x = numbers("heavy tail", n);
        const encode_step at{.seed = 3, .rank = 2, .step = 1};
        natural c;
        const auto bytes = encoded(c, x, at);
        REQUIRE(static_cast<index_t>(bytes.size()) == n + (n + 7) / 8);
        const floats y = decoded(c, bytes, n, at);
        const random_stream random = at.own_random("natural");
        for (index_t i = 0; i < n; ++i) {
            const float v = x[static_cast<std::size_t>(i)];
            const index_t j = i % 128;
            const auto word =
                random.bits4(static_cast<std::uint64_t>(i / 128 * 16 + j % 16))[static_cast<std::size_t>(j / 32)];
            const double u = ((j / 16 % 2 ? word >> 16 : word & 0xffffu) + 0.5) / 65536;
            double expected = 0;
            if (v != 0) {
                const int e = std::ilogb(v);
                const double m = std::ldexp(std::abs(double{v}), -e);
                expected = std::copysign(std::ldexp(1.0, u >= 1 - (m - 1) ? e + 1 : e), v);
            }
            REQUIRE(y[static_cast<std::size_t>(i)] == expected);
        }
    }
}

TEST_CASE("natural: powers of two are kept, denormal values keep their mean, the largest stay finite", "[natural]") {
    natural c;
    floats x;
    for (int e = -126; e < 128; ++e) x.push_back((e % 2 ? 1.0f : -1.0f) * std::ldexp(1.0f, e));
    const auto n = static_cast<index_t>(x.size());
    REQUIRE(decoded(c, encoded(c, x), n) == x);
    for (float v : decoded(c, encoded(c, floats(100, std::numeric_limits<float>::max())), 100)) REQUIRE(v == 0x1p127f);
    const floats tiny(100, 0x1p-128f);
    double sum = 0;
    for (std::uint64_t seed = 0; seed < 200; ++seed)
        for (float v : decoded(c, encoded(c, tiny, {.seed = seed}), 100)) {
            REQUIRE((v == 0 || v == 0x1p-126f));
            sum += double{v} / 0x1p-126;
        }
    CHECK(std::abs(sum / 20000 - 0.25) < 5 * std::sqrt(0.25 * 0.75 / 20000));
}

}  // namespace laws
