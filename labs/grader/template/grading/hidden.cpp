// The tests that grade beside the public ones.

#include "../tests/definition.hpp"

TEST_CASE("mean: of none, of one, of many") {
    const double of_none = lab::call<double>("mean", std::vector<float>());
    CHECK(of_none == 0);
    const auto one = lab::numbers(1, 1);
    const double of_one = lab::call<double>("mean", one);
    CHECK(of_one == static_cast<double>(one[0]));
    const auto many = lab::numbers(1000000, 2);
    const lab::expected e(many);
    const double of_many = lab::call<double>("mean", many);
    CHECK(std::abs(of_many - static_cast<double>(e.mean)) <=
          lab::relative_bound(many.size()) * static_cast<double>(e.magnitude));
}

TEST_CASE("variance: far from zero") {
    const double of_none = lab::call<double>("variance", std::vector<float>());
    CHECK(of_none == 0);
    auto x = lab::numbers(1000, 3);
    for (float& v : x) v += 1e4f;
    const auto e = static_cast<double>(lab::expected(x).variance);
    // The mean is off by at most bound · 1e4, and its square enters.
    const double off = lab::relative_bound(x.size()) * 1e4, got = lab::call<double>("variance", x);
    INFO("the variance is " << lab::text(got) << ", expected " << lab::text(e));
    CHECK(std::abs(got - e) <= off * off + lab::relative_bound(x.size()) * e);
}
