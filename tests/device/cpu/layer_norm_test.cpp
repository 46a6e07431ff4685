#include "catch.hpp"

#include <cairn/device/cpu/layer_norm.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/norm.hpp"

namespace cairn {

using namespace kernel_tests;

namespace {

template <class T>
struct layer_norm_run {
    std::vector<T> y, mean, invstd, dx, dgamma, dbeta;

    layer_norm_run(index_t rows, index_t features, const std::vector<T>& x, const std::vector<T>& gamma,
                   const std::vector<T>& beta, const std::vector<T>& dy)
        : y(x.size()), mean(std::size_t(rows)), invstd(mean), dx(y), dgamma(std::size_t(features)), dbeta(dgamma) {
        layer_norm_forward(cpu{}, rows, features, x.data(), gamma.data(), beta.data(), T(1e-5), y.data(), mean.data(),
                           invstd.data());
        layer_norm_backward(cpu{}, rows, features, dy.data(), x.data(), mean.data(), invstd.data(), gamma.data(),
                            dx.data(), dgamma.data(), dbeta.data());
    }
};

}  // namespace

TEMPLATE_TEST_CASE("layer norm: values and gradients against plain loops", "[layer_norm]", float, double) {
    using T = TestType;
    for (const index_t features : {2, 3, 16, 17, 31, 64, 768, 1001})
        for (const index_t rows : {1, 2, 50, 600}) {
            CAPTURE(rows, features);
            const index_t n = rows * features;
            const auto x = draw<T>(n, 1, 2, 5), dy = draw<T>(n, 2);
            const auto gamma = draw<T>(features, 3, 0.3, 1), beta = draw<T>(features, 4);
            const layer_norm_run<T> k(rows, features, x, gamma, beta, dy);
            const auto o = oracle::layer_norm(std::size_t(rows), std::size_t(features), doubles(x), doubles(gamma),
                                              doubles(beta), double(T(1e-5)), doubles(dy));
            const auto all = doubles(x);
            double condition = 1;  // what a rounding error of x grows by when it is normalised
            for (index_t r = 0; r < rows; ++r) {
                const auto m = oracle::moments_of(all, std::size_t(r * features), 1, std::size_t(features));
                condition = std::max(condition, (std::abs(m.mean) + std::sqrt(m.var)) / std::sqrt(m.var + 1e-5));
            }
            const double bound = eps<T>(30) * condition;
            CHECK(distance(k.y, o.y) <= bound);
            CHECK(distance(k.dx, o.dx) <= 20 * bound);
            CHECK(distance(k.dgamma, o.dgamma) <= bound * (1 + std::sqrt(double(rows))));
            CHECK(distance(k.dbeta, o.dbeta) <= bound * (1 + std::sqrt(double(rows))));
            if (rows > 50) continue;
            const auto more = draw<T>(n, 5);  // a gradient that comes another way
            auto dx = dy, dgamma = k.dgamma, dbeta = k.dbeta;
            layer_norm_backward(cpu{}, rows, features, dx.data(), x.data(), k.mean.data(), k.invstd.data(),
                                gamma.data(), dx.data(), dgamma.data(), dbeta.data(), more.data());
            auto summed = o.dx;
            for (std::size_t i = 0; i < summed.size(); ++i) summed[i] += double(more[i]);
            CHECK(distance(dx, summed) <= 20 * bound);
            CHECK(same_bits(dgamma, k.dgamma));
        }
}

TEMPLATE_TEST_CASE("layer norm: a row of equal numbers becomes beta", "[layer_norm]", float, double) {
    using T = TestType;
    for (const index_t features : {15, 100, 768})
        for (const double value : {314.16, 3141.5927, 31416.0, 1e6}) {
            CAPTURE(features, value);
            const std::vector<T> x(static_cast<std::size_t>(features), T(value)), dy = draw<T>(features, 2);
            const std::vector<T> gamma(x.size(), T(1)), beta = draw<T>(features, 4);
            const layer_norm_run<T> k(1, features, x, gamma, beta, dy);
            CHECK(same_bits(k.y, beta));
        }
}

TEMPLATE_TEST_CASE("layer norm: of numbers whose squares overflow", "[layer_norm]", float, double) {
    using T = TestType;
    const index_t rows = 4, features = 37;
    const auto gamma = draw<T>(features, 3, 0.3, 1), beta = draw<T>(features, 4);
    const auto dy = draw<T>(rows * features, 2);
    const std::vector<double> scales =
        sizeof(T) == 4 ? std::vector<double>{1e18, 1e19, 1e30, 1e38} : std::vector<double>{1e153, 1e154, 1e300};
    for (const double scale : scales) {
        CAPTURE(scale);
        const auto x = draw<T>(rows * features, 1, 0.3 * scale, 0.5 * scale);
        const layer_norm_run<T> k(rows, features, x, gamma, beta, dy);
        auto small = doubles(x), dx = doubles(k.dx);  // x / scale, dx · scale
        for (double& v : small) v /= scale;
        for (double& v : dx) v *= scale;
        const auto o = oracle::layer_norm(rows, features, small, doubles(gamma), doubles(beta), 0, doubles(dy));
        CHECK(distance(k.y, o.y) <= eps<T>(100));
        CHECK(distance(dx, o.dx) <= eps<T>(scale > 1e37 ? 1e5 : 1000));  // 1 / deviation has less digits there
        CHECK(distance(k.dgamma, o.dgamma) <= eps<T>(1000));
    }
    for (const T broken : {std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity()}) {
        auto x = draw<T>(rows * features, 1);
        x[features + 3] = broken;
        const layer_norm_run<T> k(rows, features, x, gamma, beta, dy);
        for (index_t i = 0; i < rows * features; ++i) CHECK(std::isnan(k.y[std::size_t(i)]) == (i / features == 1));
        CHECK(std::isnan(k.invstd[1]));
    }
}

TEST_CASE("layer norm: in place, without dx, and on any number of threads", "[layer_norm]") {
    const index_t rows = 5000, features = 40;
    const auto x = draw<float>(rows * features, 1), dy = draw<float>(rows * features, 2);
    const auto gamma = draw<float>(features, 3), beta = draw<float>(features, 4);
    const layer_norm_run<float> k(rows, features, x, gamma, beta, dy);
    on_several_threads([&](int) {
        const layer_norm_run<float> other(rows, features, x, gamma, beta, dy);
        CHECK(same_bits(other.y, k.y));
        CHECK(same_bits(other.dx, k.dx));
        CHECK(same_bits(other.dgamma, k.dgamma));
        CHECK(same_bits(other.dbeta, k.dbeta));
    });
    auto y = x, dx = dy;
    layer_norm_forward<float>(cpu{}, rows, features, y.data(), gamma.data(), beta.data(), 1e-5f, y.data(), nullptr,
                              nullptr);
    CHECK(same_bits(y, k.y));
    std::vector<float> dgamma(k.dgamma.size()), dbeta(dgamma);
    layer_norm_backward(cpu{}, rows, features, dx.data(), x.data(), k.mean.data(), k.invstd.data(), gamma.data(),
                        dx.data(), dgamma.data(), dbeta.data());
    CHECK(same_bits(dx, k.dx));
    layer_norm_backward<float>(cpu{}, rows, features, dy.data(), x.data(), k.mean.data(), k.invstd.data(), gamma.data(),
                               nullptr, dgamma.data(), dbeta.data());
    CHECK(same_bits(dgamma, k.dgamma));
    CHECK(same_bits(dbeta, k.dbeta));
}

}  // namespace cairn
