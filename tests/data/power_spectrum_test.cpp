#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/power_spectrum.hpp>

#include <vector>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("power spectrum: normalised to sigma_8, by an integral of its own", "[cosmology]") {
    for (const cosmology& c : {cosmology{}, cosmology{0.1, 0.6, 0.8, 0.67, 0.049},
                               cosmology{0.5, 1.0, 1.2, 0.67, 0.049}, cosmology{0.25, 0.75, 1.0, 0.9, 0.03}}) {
        const power_spectrum p(c);
        // Simpson's rule in k, not ln k, the top hat in its plain form.
        const double kmax = 20;
        const int steps = 400000;
        double sum = 0;
        for (int i = 1; i < steps; ++i) {
            const double k = kmax * i / steps, x = 8 * k, w = 3 * (std::sin(x) - x * std::cos(x)) / (x * x * x);
            sum += (i % 2 ? 4 : 2) * k * k * p(k) * (x < 0.02 ? 1 : w * w);
        }
        REQUIRE(std::sqrt(sum * kmax / steps / 3 / (2 * std::numbers::pi * std::numbers::pi)) ==
                Approx(c.sigma_8).epsilon(2e-4));
        REQUIRE(p.sigma(8) == Approx(c.sigma_8).epsilon(1e-12));
        REQUIRE(p.sigma(16) < c.sigma_8);
    }
}

TEST_CASE("power spectrum: limits and shape of the transfer function", "[cosmology]") {
    const power_spectrum p(cosmology{});
    REQUIRE(p.transfer(1e-6) == Approx(1).epsilon(1e-3));
    // Far above the peak T ~ ln k / k².
    const double ratio = p.transfer(200) / p.transfer(100);
    REQUIRE(ratio > 0.25);
    REQUIRE(ratio < 0.30);
    // The primordial slope at small k; the peak where matter and radiation are equal; today's amplitude within a few
    // percent.
    REQUIRE(std::log(p(2e-5) / p(1e-5)) / std::log(2.0) == Approx(0.96).margin(0.01));
    double peak = 0, at = 0;
    for (double k = 1e-3; k < 1; k *= 1.01)
        if (p(k) > peak) {
            peak = p(k);
            at = k;
        }
    REQUIRE(at > 0.012);
    REQUIRE(at < 0.020);
    REQUIRE(peak > 2.0e4);
    REQUIRE(peak < 3.0e4);
    // Bardeen, Bond, Kaiser and Szalay 1986 with Sugiyama's shape parameter: another fit of the same physics, to a
    // tenth.
    const cosmology c;
    const double gamma = c.omega_m * c.h * std::exp(-c.omega_b * (1 + std::sqrt(2 * c.h) / c.omega_m));
    for (double k : {0.01, 0.03, 0.1, 0.3, 1.0}) {
        const double q = k / gamma * std::pow(2.7255 / 2.7, 2);
        const double bbks =
            std::log(1 + 2.34 * q) / (2.34 * q) *
            std::pow(1 + 3.89 * q + std::pow(16.1 * q, 2) + std::pow(5.46 * q, 3) + std::pow(6.71 * q, 4), -0.25);
        REQUIRE(p.transfer(k) == Approx(bbks).epsilon(0.1));
    }
    // More matter: the peak moves to smaller scales, so that at equal sigma_8 large scales hold less.
    REQUIRE(power_spectrum({.omega_m = 0.5})(0.02) < power_spectrum({.omega_m = 0.2})(0.02));
}

TEST_CASE("power spectrum: the top hat's series meets its formula", "[cosmology]") {
    REQUIRE(top_hat(0) == 1);
    REQUIRE(top_hat(0.0499999) == Approx(top_hat(0.0500001)).epsilon(1e-7));
    REQUIRE(top_hat(4.493409457909064) == Approx(0).margin(1e-12));
}

TEST_CASE("power spectrum: impossible universes", "[cosmology]") {
    REQUIRE_THAT(message_of([] { power_spectrum({.omega_m = 0}); }), Contains("impossible cosmology: Omega_m 0"));
    REQUIRE_THAT(message_of([] { power_spectrum({.omega_m = 0.04}); }), Contains("impossible"));
    REQUIRE_THAT(message_of([] { power_spectrum({.sigma_8 = -1}); }), Contains("sigma_8 -1"));
}

}  // namespace cairn::test
