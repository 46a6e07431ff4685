#include "compress/compressor_laws.hpp"

#include <cairn/compress/qsgd.hpp>

namespace laws {

TEST_CASE("qsgd keeps the contract laws", "[qsgd]") {
    for (const int levels : {1, 2, 7, 255}) check_laws([=] { return qsgd({levels}); });
    REQUIRE_THROWS_AS(qsgd({0}), error);
    REQUIRE_THROWS_AS(qsgd({256}), error);
}

TEST_CASE("qsgd is unbiased, with the variance of its paper", "[qsgd]") {
    check_unbiased([] { return qsgd(); });
    check_unbiased([] { return qsgd({1}); }, 600);
    check_unbiased([] { return qsgd({255}); }, 300);
}

// The definition, value by value, with the random bits of random_bits.hpp; bits are read where bit_planes.hpp puts
// them.
TEST_CASE("qsgd is its formula, in the bytes of its format", "[qsgd]") {
    for (const int levels : {1, 7, 100, 255}) {
        int bits = 1;
        while ((1 << (bits - 1)) < levels + 1) ++bits;
        for (const index_t n : sizes) {
            CAPTURE(levels, n);
            const floats x = numbers("heavy tail", n);
            const encode_step at{.seed = 77, .rank = 1, .step = 9};
            qsgd c({levels});
            const auto bytes = encoded(c, x, at);
            REQUIRE(static_cast<index_t>(bytes.size()) ==
                    (n + 127) / 128 * 4 + bits * (n / 128 * 16 + (n % 128 + 7) / 8));
            const floats y = decoded(c, bytes, n, at);
            const random_stream random = at.own_random("qsgd");
            std::size_t offset = 0;
            for (index_t g = 0; g * 128 < n; ++g) {
                const index_t m = std::min<index_t>(128, n - g * 128), stride = (m + 7) / 8;
                double squared = 0;
                for (index_t i = 0; i < m; ++i)
                    squared += std::pow(double{x[static_cast<std::size_t>(g * 128 + i)]}, 2);
                float norm;
                std::memcpy(&norm, &bytes[offset], 4);
                REQUIRE(norm == Approx(std::sqrt(squared)).epsilon(1e-6));
                for (index_t i = 0; i < m; ++i) {
                    const float v = x[static_cast<std::size_t>(g * 128 + i)];
                    const auto word =
                        random.bits4(static_cast<std::uint64_t>(16 * g + i % 16))[static_cast<std::size_t>(i / 32)];
                    const double u = ((i / 16 % 2 ? word >> 16 : word & 0xffffu) + 0.5) / 65536;
                    const double wanted = norm > 0 ? std::abs(double{v}) / norm * levels + u : u;
                    unsigned code = 0;
                    for (int j = 0; j < bits; ++j)
                        code |=
                            ((static_cast<unsigned>(bytes[offset + 4 + static_cast<std::size_t>(j * stride + i / 8)]) >>
                              (i % 8)) &
                             1u)
                            << j;
                    const unsigned level = code & ((1u << (bits - 1)) - 1);
                    const bool on_edge = std::abs(wanted - std::round(wanted)) < 1e-4;
                    if (!on_edge)
                        REQUIRE(level == std::min(static_cast<unsigned>(wanted), static_cast<unsigned>(levels)));
                    REQUIRE((code >> (bits - 1) != 0) == std::signbit(v));
                    const float expected = static_cast<float>(level) * (norm / static_cast<float>(levels));
                    REQUIRE(y[static_cast<std::size_t>(g * 128 + i)] == (std::signbit(v) ? -expected : expected));
                }
                offset += static_cast<std::size_t>(4 + bits * stride);
            }
        }
    }
}

TEST_CASE("qsgd: largest values, smallest values, damaged norms", "[qsgd]") {
    const float most = std::numeric_limits<float>::max();
    qsgd c;
    for (float v : decoded(c, encoded(c, floats(300, most)), 300)) REQUIRE(std::isfinite(v));
    const floats tiny(5, 1e-45f);
    for (float v : decoded(c, encoded(c, tiny), 5)) REQUIRE((v >= 0 && v <= 3e-45f));
    auto bytes = encoded(c, numbers("normal", 200));
    const float bad = std::nanf("");
    std::memcpy(&bytes[4 + 64], &bad, 4);
    REQUIRE_THROWS_WITH(decoded(c, bytes, 200), Catch::Contains("byte 68: a norm of nan"));
}

}  // namespace laws
