#include "catch.hpp"

#include <cairn/device/cpu/dropout.hpp>

#include "device/cpu/kernel_numbers.hpp"

namespace cairn {

using namespace kernel_tests;

TEMPLATE_TEST_CASE("dropout: the mask is that of the scalar generator", "[dropout]", float, double) {
    using T = TestType;
    const random_stream random{0x123456789abcdefull, 77, 5};
    for (const index_t n : {0, 1, 15, 64, 65, 1000, 100003})
        for (const double rate : {0.0, 0.25, 0.9}) {
            CAPTURE(n, rate);
            const auto x = draw<T>(n, 1);
            std::vector<T> y(x.size()), expected(x.size());
            for (std::size_t i = 0; i < x.size(); ++i) {
                const std::uint32_t bits = random.bits4(16 * (i / 64) + i % 16)[i / 16 % 4];
                expected[i] =
                    bits >= static_cast<std::uint32_t>(rate * 0x1p32) ? x[i] * static_cast<T>(1 / (1 - rate)) : T(0);
            }
            dropout_apply(cpu{}, n, rate, random, x.data(), y.data());
            CHECK(same_bits(y, expected));
            auto in_place = x;
            dropout_apply(cpu{}, n, rate, random, in_place.data(), in_place.data());
            CHECK(same_bits(in_place, expected));
        }
}

TEST_CASE("dropout: rate, independence of steps, streams and threads, errors", "[dropout]") {
    const index_t n = 1 << 20;
    const std::vector<float> ones(n, 1.0f);
    const auto run = [&](random_stream random, double rate = 0.3) {
        std::vector<float> y(ones.size());
        dropout_apply(cpu{}, n, rate, random, ones.data(), y.data());
        return y;
    };
    const auto kept = [](const std::vector<float>& y) {
        return double(std::count_if(y.begin(), y.end(), [](float v) { return v != 0; }));
    };
    const auto y = run({1, 2, 3});
    CHECK(std::abs(kept(y) / n - 0.7) < 5 * std::sqrt(0.3 * 0.7 / n));
    for (const random_stream other : {random_stream{2, 2, 3}, random_stream{1, 3, 3}, random_stream{1, 2, 4}}) {
        const auto z = run(other);
        double both = 0;
        for (std::size_t i = 0; i < y.size(); ++i) both += y[i] != 0 && z[i] != 0;
        CHECK(std::abs(both / n - 0.49) < 5 * std::sqrt(0.49 * 0.51 / n));
    }
    on_several_threads([&](int) { CHECK(same_bits(run({1, 2, 3}), y)); });
    CHECK_THROWS_WITH(run({1, 2, 3}, 1.0), Catch::Matchers::Contains("rate 1 is not in [0, 1)"));
    CHECK_THROWS_AS(run({1, 2, 3}, -0.1), error);
}

}  // namespace cairn
