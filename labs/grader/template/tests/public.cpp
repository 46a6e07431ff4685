// The tests that students have.

#include "definition.hpp"

TEST_CASE("mean: of a few numbers") {
    for (const std::size_t n : {2, 7, 100}) {
        const auto x = lab::numbers(n, static_cast<std::uint32_t>(n));  // others for every student, from the seed
        const lab::expected e(x);
        const double got = lab::call<double>("mean", x);
        INFO(n << " numbers: the mean is " << lab::text(got) << ", expected "
               << lab::text(static_cast<double>(e.mean)));
        CHECK(std::abs(got - static_cast<double>(e.mean)) <= lab::relative_bound(n) * static_cast<double>(e.magnitude));
    }
}

TEST_CASE("variance: of a few numbers") {
    for (const std::size_t n : {2, 7, 100}) {
        const auto x = lab::numbers(n, 200 + static_cast<std::uint32_t>(n));
        const auto e = static_cast<double>(lab::expected(x).variance);
        const double got = lab::call<double>("variance", x);
        INFO(n << " numbers: the variance is " << lab::text(got) << ", expected " << lab::text(e));
        CHECK(std::abs(got - e) <= 4 * lab::relative_bound(n));  // all numbers are below 1
    }
}
