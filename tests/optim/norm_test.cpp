#include "catch.hpp"

#include <cairn/core/parameter.hpp>
#include <cairn/optim/norm.hpp>

using namespace cairn;

TEST_CASE("norm and fused sums equal plain loops on any number of threads") {
    const cairn::index_t n = GENERATE(0, 1, 7, 100, 16'384, 16'385, 200'003);
    tensor<float> x({n}), y({n});
    fill(x.span(), {initializer::distribution::normal, 2.0, 0.5}, {1, 0, 0});
    double squares = 0, sum = 0;
    for (float value : x.span()) {
        squares += static_cast<double>(value) * static_cast<double>(value);
        sum += static_cast<double>(value);
    }
    CHECK(norm(x) == Approx(std::sqrt(squares)).epsilon(1e-12));

    const auto pass = [](double& first, double& second, float a, float& b) {
        b = 2 * a;
        first += static_cast<double>(a);
        second += static_cast<double>(a) * static_cast<double>(a);
    };
    const int before = threads();
    set_threads(1);
    const double one = norm(x);
    const sum_pair pair = sum_each(cpu{}, n, pass, x.data(), y.data());
    set_threads(2);
    CHECK(norm(x) == one);
    const sum_pair again = sum_each(cpu{}, n, pass, x.data(), y.data());
    set_threads(before);
    CHECK(pair.first == again.first);
    CHECK(pair.second == again.second);
    CHECK(pair.first == Approx(sum).epsilon(1e-11).margin(1e-9));
    CHECK(pair.second == Approx(squares).epsilon(1e-12));
    for (cairn::index_t i = 0; i < n; ++i) REQUIRE(y[i] == 2 * x[i]);
}

TEST_CASE("norms of the largest and smallest floats do not overflow or vanish") {
    CHECK(norm(tensor<float>::filled({4}, 3e38f)) == Approx(6e38));
    CHECK(norm(tensor<float>::filled({4}, 1e-40f)) == Approx(2e-40).epsilon(1e-4));
}
