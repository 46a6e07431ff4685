#include "compress/compressor_laws.hpp"

#include <cairn/compress/dgc.hpp>

#include <algorithm>

namespace laws {

TEST_CASE("dgc keeps the contract laws", "[dgc]") {
    check_laws([] { return dgc({.ratio = 0.05}); });
    check_laws([] { return dgc({.ratio = 0.2, .values = sparse_value::bfloat16}); });
}

// The paper's algorithm in plain loops and double. Buckets below 2048 values are sampled whole, so τ is the exact one.
TEST_CASE("dgc is the paper's algorithm", "[dgc]") {
    const double momentum = GENERATE(0.0, 0.9), clip = GENERATE(0.0, 0.5);
    const index_t n = 1000, k = 50;
    dgc c({.ratio = 0.05, .momentum = momentum, .clip = clip, .ranks = 4});
    std::vector<double> u(static_cast<std::size_t>(n)), v(u);
    for (int t = 0; t < 20; ++t) {
        const floats g = numbers("normal", n, static_cast<std::uint32_t>(t + 1));
        const double norm = std::sqrt(squares(g)), allowed = clip / 2;
        const double factor = clip > 0 && norm > allowed ? allowed / norm : 1;
        for (std::size_t i = 0; i < u.size(); ++i) {
            u[i] = momentum * u[i] + factor * g[i];
            v[i] += u[i];
        }
        std::vector<double> sorted(v);
        std::sort(sorted.begin(), sorted.end(), [](double a, double b) { return std::abs(a) > std::abs(b); });
        const double threshold = std::abs(sorted[static_cast<std::size_t>(k - 1)]) * (1 - 1e-6);
        const floats y = decoded(c, encoded(c, g, {.step = t}), n);
        for (std::size_t i = 0; i < v.size(); ++i) {
            CAPTURE(t, i);
            if (std::abs(v[i]) >= threshold) {
                REQUIRE(y[i] == Approx(v[i]).epsilon(1e-5));
                u[i] = v[i] = 0;
            } else {
                REQUIRE(y[i] == 0);
            }
        }
        const auto state = c.tensors();
        REQUIRE(state[0].name == "velocity");
        REQUIRE(state[1].name == "accumulated");
        for (std::size_t i = 0; i < v.size(); ++i) {
            REQUIRE(state[0].t[static_cast<index_t>(i)] == Approx(u[i]).epsilon(1e-4).margin(1e-5));
            REQUIRE(state[1].t[static_cast<index_t>(i)] == Approx(v[i]).epsilon(1e-4).margin(1e-5));
        }
    }
}

TEST_CASE("dgc: the ratio falls by stages to the final one", "[dgc]") {
    dgc c({.ratio = 0.001, .warmup_stage = 10});
    REQUIRE(c.ratio(0) == 0.25);
    REQUIRE(c.ratio(9) == 0.25);
    REQUIRE(c.ratio(10) == 0.0625);
    REQUIRE(c.ratio(25) == 0.015625);
    REQUIRE(c.ratio(39) == Approx(0.00390625));
    REQUIRE(c.ratio(40) == 0.001);
    REQUIRE(c.ratio(1000000) == 0.001);
    REQUIRE(dgc({.ratio = 0.01}).ratio(0) == 0.01);
    const floats g = numbers("normal", 1000);
    REQUIRE(encoded(c, g, {.step = 0}).size() > 250 * 4);
    REQUIRE(encoded(c, g, {.step = 100}).size() < 20);
}

TEST_CASE("dgc: an error leaves the state alone", "[dgc]") {
    dgc c({.ratio = 0.25});
    message<> m;
    c.encode(floats{1, 2, 3, 4}, m, {});
    REQUIRE_THROWS_AS(c.encode(floats{1, 2, std::nanf(""), 4}, m, {}), error);
    const auto state = c.tensors();
    REQUIRE(floats(state[1].t.span().begin(), state[1].t.span().end()) == floats{1, 2, 3, 0});
    REQUIRE_THROWS_AS(c.encode(floats{1}, m, {}), error);
}

}  // namespace laws
