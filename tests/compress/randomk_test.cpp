#include "compress/compressor_laws.hpp"

#include <cairn/compress/feedback.hpp>
#include <cairn/compress/randomk.hpp>

namespace laws {

TEST_CASE("randomk keeps the contract laws", "[randomk]") {
    check_laws([] { return randomk({.ratio = 0.1}); });
    check_laws([] { return randomk({.ratio = 1}); });
    check_laws([] { return error_feedback(randomk({.ratio = 0.03})); });
    check_laws([] { return randomk({.ratio = 0.3, .unbiased = true}); });
}

TEST_CASE("randomk: one place of each stratum, from Philox, the same on all ranks", "[randomk]") {
    for (const index_t n : sizes) {
        const floats x = numbers("ramp", n);
        const encode_step at{.seed = 42, .rank = 0, .step = 6, .bucket = 3};
        encode_step other = at;
        other.rank = 5;
        randomk c({.ratio = 0.07});
        const index_t k = n ? static_cast<index_t>(std::ceil(0.07 * static_cast<double>(n))) : 0;
        const auto bytes = encoded(c, x, at);
        REQUIRE(bytes == encoded(c, x, other));
        REQUIRE(static_cast<index_t>(bytes.size()) == 4 * k);
        floats expected(x.size());
        const random_stream random = at.shared_random("randomk");
        for (index_t i = 0; i < k; ++i) {
            const index_t begin = i * n / k, end = (i + 1) * n / k;
            const double u = random.bits(static_cast<std::uint64_t>(i)) / 0x1p32;
            const auto place =
                static_cast<std::size_t>(begin + static_cast<index_t>(u * static_cast<double>(end - begin)));
            expected[place] = x[place];
        }
        REQUIRE(decoded(c, bytes, n, at) == expected);
    }
}

TEST_CASE("randomk: messages of one step add up", "[randomk]") {
    const index_t n = 1000;
    const floats x = numbers("normal", n), y = numbers("heavy tail", n, 2);
    const encode_step at{.seed = 1, .step = 2};
    for (const bool unbiased : {false, true}) {
        randomk c({.ratio = 0.2, .unbiased = unbiased});
        REQUIRE(c.contract(n).summable == summand::float32);
        auto a = encoded(c, x, at);
        const auto b = encoded(c, y, at);
        for (std::size_t i = 0; i < a.size(); i += 4) {
            float u, v;
            std::memcpy(&u, &a[i], 4);
            std::memcpy(&v, &b[i], 4);
            u += v;
            std::memcpy(&a[i], &u, 4);
        }
        const floats sum = decoded(c, a, n, at), dy = decoded(c, b, n, at), dx = decoded(c, encoded(c, x, at), n, at);
        for (std::size_t i = 0; i < sum.size(); ++i)
            REQUIRE(sum[i] == Approx(dx[i] + dy[i]).epsilon(1e-5).margin(1e-5));
    }
}

TEST_CASE("randomk, scaled, is unbiased; without, a contraction in the mean", "[randomk]") {
    check_unbiased([] { return randomk({.ratio = 0.3, .unbiased = true}); });
    const floats x = numbers("normal", 500);
    randomk c({.ratio = 0.1});
    double lost = 0;
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
        const encode_step at{.seed = seed};
        lost += squares(difference(x, decoded(c, encoded(c, x, at), 500, at))) / 300;
    }
    REQUIRE(c.contract(500).contraction == Approx(0.1));
    CHECK(lost == Approx(0.9 * squares(x)).epsilon(0.02));
}

}  // namespace laws
