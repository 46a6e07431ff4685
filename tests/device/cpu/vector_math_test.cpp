#include "catch.hpp"

#include <cairn/device/cpu/vector_math.hpp>

#include <limits>
#include <vector>

namespace cairn {

namespace {

/// Largest error of f over [low, high] in units of the last place of the exact value (or of 1, `of_one`).
template <class T, class F, class Exact>
double worst_ulps(double low, double high, F f, Exact exact, bool of_one = false) {
    constexpr int n = 40000;
    std::vector<T> x(n), y(n);
    for (std::size_t i = 0; i < n; ++i) x[i] = static_cast<T>(low + (high - low) * double(i) / n);
    T *const in = x.data(), *const out = y.data();
#pragma omp simd
    for (int i = 0; i < n; ++i) out[i] = f(in[i]);
    double worst = 0;
    for (std::size_t i = 0; i < n; ++i) {
        const long double e = exact(static_cast<long double>(x[i]));
        const T rounded = of_one ? T(1) : std::max(std::abs(static_cast<T>(e)), std::numeric_limits<T>::min());
        const T ulp = std::nextafter(rounded, std::numeric_limits<T>::infinity()) - rounded;
        worst = std::max(worst, static_cast<double>(std::abs(static_cast<long double>(y[i]) - e) / ulp));
    }
    return worst;
}

}  // namespace

TEMPLATE_TEST_CASE("vector_math: errors in units of the last place", "[vector_math]", float, double) {
    using T = TestType;
    const double low = sizeof(T) == 4 ? -87 : -708, high = sizeof(T) == 4 ? 88.7 : 709.7;
    const auto exp = [](T x) { return vector_math::exp(x); };
    const auto exact_exp = [](long double x) { return std::exp(x); };
    CHECK(worst_ulps<T>(low, high, exp, exact_exp) <= 2);
    CHECK(worst_ulps<T>(-1, 1, exp, exact_exp) <= 2);
    CHECK(worst_ulps<T>(low * 1.3, high, exp, exact_exp) <= 2);  // gradual underflow
    const auto exp_nonpositive = [](T x) { return vector_math::exp_nonpositive(x); };
    CHECK(worst_ulps<T>(low, 0, exp_nonpositive, exact_exp) <= 2);
    CHECK(worst_ulps<T>(-1, 1, exp_nonpositive, exact_exp) <= 2);

    const auto tanh = [](T x) { return vector_math::tanh(x); };
    const auto exact_tanh = [](long double x) { return std::tanh(x); };
    CHECK(worst_ulps<T>(-25, 25, tanh, exact_tanh) <= 3);
    CHECK(worst_ulps<T>(-1, 1, tanh, exact_tanh) <= 3);
    CHECK(worst_ulps<T>(-1e-3, 1e-3, tanh, exact_tanh) <= 3);

    const auto exact_sigmoid = [](long double x) { return 1 / (1 + std::exp(-x)); };
    CHECK(worst_ulps<T>(
              -80, 80, [](T x) { return vector_math::sigmoid(x); }, exact_sigmoid) <= 3);

    const auto exact_erfc = [](long double x) { return std::erfc(x); };
    CHECK(worst_ulps<T>(
              -9, 9, [](T x) { return vector_math::erfc(x); }, exact_erfc, true) <= 4);
    CHECK(worst_ulps<T>(
              0, 2, [](T x) { return vector_math::erfc(x); }, exact_erfc) <= 40);
}

TEMPLATE_TEST_CASE("vector_math: limits and NaN", "[vector_math]", float, double) {
    using T = TestType;
    constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    CHECK(vector_math::exp(infinity) == infinity);
    CHECK(vector_math::exp(-infinity) == 0);
    CHECK(vector_math::exp(T(0)) == 1);
    CHECK(vector_math::exp_nonpositive(-infinity) == 0);
    CHECK(vector_math::exp_nonpositive(-std::numeric_limits<T>::max()) == 0);
    CHECK(vector_math::exp_nonpositive(T(0)) == 1);
    CHECK(std::isnan(vector_math::exp_nonpositive(nan)));
    CHECK(vector_math::tanh(infinity) == 1);
    CHECK(vector_math::tanh(-infinity) == -1);
    CHECK(std::signbit(vector_math::tanh(T(-0.0))));
    CHECK(vector_math::sigmoid(infinity) == 1);
    CHECK(vector_math::sigmoid(-infinity) == 0);
    CHECK(vector_math::erfc(infinity) == 0);
    CHECK(vector_math::erfc(-infinity) == 2);
    CHECK(std::isnan(vector_math::exp(nan)));
    CHECK(std::isnan(vector_math::exp(-nan)));
    CHECK(std::isnan(vector_math::tanh(nan)));
    CHECK(std::isnan(vector_math::sigmoid(nan)));
    CHECK(std::isnan(vector_math::erfc(nan)));
}

}  // namespace cairn
