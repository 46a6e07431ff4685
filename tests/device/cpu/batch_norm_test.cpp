#include "catch.hpp"
#include "device/cuda/norm_laws.hpp"

#include <cairn/device/cpu/batch_norm.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/norm.hpp"

#include <optional>

namespace cairn {

using namespace kernel_tests;

namespace {

/// All kernels of one batch norm, as the layer calls them.
template <class T>
struct kernels {
    std::vector<T> mean, invstd, y, dx, dskip, dgamma, dbeta;
    std::vector<double> var;

    kernels(index_t rows, index_t channels, const std::vector<T>& x, const std::vector<T>& skip,
            const std::vector<T>& gamma, const std::vector<T>& beta, activation act, T slope, const std::vector<T>& dy)
        : mean(std::size_t(channels)),
          invstd(mean),
          y(x.size()),
          dx(y),
          dskip(y),
          dgamma(mean),
          dbeta(mean),
          var(mean.size()) {
        batch_statistics(cpu{}, rows, channels, x.data(), mean.data(), var.data());
        for (std::size_t c = 0; c < mean.size(); ++c) invstd[c] = static_cast<T>(1 / std::sqrt(var[c] + 1e-5));
        std::vector<std::uint8_t> mask(std::size_t(simd::mask_bytes<T>(rows * channels)));
        std::uint8_t* const bits = act == activation::none ? nullptr : mask.data();
        batch_norm_apply(cpu{}, rows, channels, x.data(), skip.data(), mean.data(), invstd.data(), gamma.data(),
                         beta.data(), act, slope, y.data(), bits);
        batch_norm_sums(cpu{}, rows, channels, dy.data(), bits, act, slope, x.data(), mean.data(), invstd.data(),
                        dgamma.data(), dbeta.data());
        batch_norm_gradient(cpu{}, rows, channels, dy.data(), bits, act, slope, x.data(), mean.data(), invstd.data(),
                            gamma.data(), dgamma.data(), dbeta.data(), dx.data(), dskip.data());
    }
};

/// Growth of a rounding error of x in normalisation: largest (|mean| + deviation) / sqrt(var + eps).
double condition(const std::vector<double>& mean, const std::vector<double>& var) {
    double worst = 1;
    for (std::size_t c = 0; c < mean.size(); ++c)
        worst = std::max(worst, (std::abs(mean[c]) + std::sqrt(var[c])) / std::sqrt(var[c] + 1e-5));
    return worst;
}

}  // namespace

TEMPLATE_TEST_CASE("batch norm: statistics, values and gradients against plain loops", "[batch_norm]", float, double) {
    using T = TestType;
    for (const index_t channels : {1, 3, 7, 16, 64, 100, 257})
        for (const index_t rows : {2, 5, 63, 64, 300, 4000})
            for (const activation act : {activation::none, activation::relu, activation::leaky_relu}) {
                if (rows * channels > 500000) continue;
                CAPTURE(channels, rows, name_of(act));
                const index_t n = rows * channels;
                const auto x = draw<T>(n, 1, 2, 3), skip = draw<T>(n, 2), dy = draw<T>(n, 3);
                const auto gamma = draw<T>(channels, 4, 0.3, 1), beta = draw<T>(channels, 5);
                const T slope = T(0.25);
                const double kept = act == activation::none ? 1 : act == activation::relu ? 0 : 0.25;
                const kernels<T> k(rows, channels, x, skip, gamma, beta, act, slope, dy);
                auto o = oracle::batch_norm(std::size_t(rows), std::size_t(channels), doubles(x), doubles(skip),
                                            doubles(gamma), doubles(beta), 1e-5, kept, doubles(dy));
                const double bound = eps<T>(30) * condition(o.mean, o.var);
                CHECK(distance(k.mean, o.mean) <= bound);
                CHECK(distance(k.var, o.var) <= bound);
                CHECK(distance(k.y, o.y) <= bound);
                // Where v rounds to the other side of 0, the mask differs; it does not for these numbers in double.
                CHECK(distance(k.dskip, o.dskip) <= (sizeof(T) == 8 ? bound : 10));
                const double sums = bound * (1 + std::sqrt(double(rows)));
                if (sizeof(T) == 8) {
                    CHECK(distance(k.dgamma, o.dgamma) <= sums);
                    CHECK(distance(k.dbeta, o.dbeta) <= sums);
                    CHECK(distance(k.dx, o.dx) <= 10 * bound);
                } else {
                    // Against an oracle with the kernel's own mask, through the identity activation.
                    o = oracle::batch_norm(std::size_t(rows), std::size_t(channels), doubles(x), doubles(skip),
                                           doubles(gamma), doubles(beta), 1e-5, 1, doubles(k.dskip));
                    CHECK(distance(k.dgamma, o.dgamma) <= sums);
                    CHECK(distance(k.dbeta, o.dbeta) <= sums);
                    CHECK(distance(k.dx, o.dx) <= 10 * bound);
                }
            }
}

TEMPLATE_TEST_CASE("batch norm: the variance of values far from zero keeps its digits", "[batch_norm]", float, double) {
    using T = TestType;
    // Mean 1000, deviation 1: E[x²] - mean² in float would be off by 6 % and more.
    const index_t rows = 20000, channels = 24;
    const auto x = draw<T>(rows * channels, 8, 1, 1000);
    std::vector<T> mean(std::size_t(channels), T(0)), var(mean);
    batch_statistics(cpu{}, rows, channels, x.data(), mean.data(), var.data());
    const auto d = doubles(x);
    for (std::size_t c = 0; c < mean.size(); ++c) {
        const auto m = oracle::moments_of(d, c, std::size_t(channels), std::size_t(rows));
        CHECK(std::abs(double(mean[c]) - m.mean) <= 1000 * eps<T>(8));
        CHECK(std::abs(double(var[c]) - m.var) <= m.var * eps<T>(500));
    }
    const std::vector<T> constant(std::size_t(rows * channels), T(1234.5));
    batch_statistics(cpu{}, rows, channels, constant.data(), mean.data(), var.data());
    for (std::size_t c = 0; c < mean.size(); ++c) {
        CHECK(mean[c] == T(1234.5));
        CHECK(var[c] == T(0));
    }
}

TEST_CASE("batch norm: of numbers whose squares overflow", "[batch_norm]") {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const index_t channels : {3, 40})
        for (const index_t rows : {5, 300}) {
            const index_t n = rows * channels;
            const auto skip = draw<float>(n, 2), dy = draw<float>(n, 3);
            const auto gamma = draw<float>(channels, 4, 0.3, 1), beta = draw<float>(channels, 5);
            for (const double scale : {1e18, 1e19, 1e30, 1e36}) {
                CAPTURE(channels, rows, scale);
                const auto x = draw<float>(n, 1, scale, 0.5 * scale);
                const kernels<float> k(rows, channels, x, skip, gamma, beta, activation::none, 0.0f, dy);
                auto small = doubles(x), dx = doubles(k.dx);  // x / scale, dx · scale
                for (double& v : small) v /= scale;
                for (double& v : dx) v *= scale;
                const auto o = oracle::batch_norm(std::size_t(rows), std::size_t(channels), small, doubles(skip),
                                                  doubles(gamma), doubles(beta), 0, 1, doubles(dy));
                CHECK(distance(k.y, o.y) <= eps<float>(100));
                CHECK(distance(dx, o.dx) <= eps<float>(1000));
                CHECK(distance(k.dgamma, o.dgamma) <= eps<float>(1000 * std::sqrt(double(rows))));
            }
            for (const float broken : {std::nanf(""), infinity, -infinity}) {
                auto x = draw<float>(n, 1);
                x[std::size_t(channels + 2)] = broken;
                const kernels<float> k(rows, channels, x, skip, gamma, beta, activation::relu, 0.0f, dy);
                for (index_t i = 0; i < n; ++i) CHECK(std::isnan(k.y[std::size_t(i)]) == (i % channels == 2));
                CHECK(std::isnan(k.var[2]));
            }
        }
}

TEST_CASE("batch norm: results may overwrite the operands they may", "[batch_norm]") {
    const index_t rows = 333, channels = 20, n = rows * channels;
    const auto x = draw<float>(n, 1), skip = draw<float>(n, 2), dy = draw<float>(n, 3);
    const auto gamma = draw<float>(channels, 4, 0.3, 1), beta = draw<float>(channels, 5);
    const kernels<float> k(rows, channels, x, skip, gamma, beta, activation::relu, 0.0f, dy);
    std::vector<std::uint8_t> bits(std::size_t(simd::mask_bytes<float>(n)));
    const auto apply = [&](const float* from, const float* added, float* to) {
        batch_norm_apply(cpu{}, rows, channels, from, added, k.mean.data(), k.invstd.data(), gamma.data(), beta.data(),
                         activation::relu, 0.0f, to, bits.data());
    };
    auto over_x = x, over_skip = skip;
    apply(over_x.data(), skip.data(), over_x.data());
    apply(x.data(), over_skip.data(), over_skip.data());
    CHECK(same_bits(over_x, k.y));
    CHECK(same_bits(over_skip, k.y));

    const auto gradient = [&](const float* g, const float* from, float* dx, float* dskip) {
        batch_norm_gradient(cpu{}, rows, channels, g, bits.data(), activation::relu, 0.0f, from, k.mean.data(),
                            k.invstd.data(), gamma.data(), k.dgamma.data(), k.dbeta.data(), dx, dskip);
    };
    auto over_dy = dy;
    gradient(over_dy.data(), x.data(), over_dy.data(), nullptr);
    CHECK(same_bits(over_dy, k.dx));
    auto skip_over_dy = dy, dx_over_x = x;
    gradient(skip_over_dy.data(), dx_over_x.data(), dx_over_x.data(), skip_over_dy.data());
    CHECK(same_bits(dx_over_x, k.dx));
    CHECK(same_bits(skip_over_dy, k.dskip));
}

TEST_CASE("batch norm: a NaN is passed on through the activation", "[batch_norm]") {
    const index_t rows = 40, channels = 5;
    auto x = draw<float>(rows * channels, 1);
    x[7] = std::numeric_limits<float>::quiet_NaN();  // channel 2
    const std::vector<float> skip(x.size()), dy(x.size(), 1.0f), one(5, 1.0f), zero(5, 0.0f);
    const kernels<float> k(rows, channels, x, skip, one, zero, activation::relu, 0.0f, dy);
    for (std::size_t i = 0; i < x.size(); ++i) CHECK(std::isnan(k.y[i]) == (i % 5 == 2));
}

TEST_CASE("batch norm: the same bits on any number of threads", "[batch_norm]") {
    for (const index_t channels : {3, 64}) {
        const index_t rows = 30001, n = rows * channels;
        const auto x = draw<float>(n, 1), skip = draw<float>(n, 2), dy = draw<float>(n, 3);
        const auto gamma = draw<float>(channels, 4), beta = draw<float>(channels, 5);
        std::optional<kernels<float>> first;
        on_several_threads([&](int) {
            kernels<float> k(rows, channels, x, skip, gamma, beta, activation::relu, 0.0f, dy);
            if (!first) first = k;
            CHECK(same_bits(k.mean, first->mean));
            CHECK(same_bits(k.var, first->var));
            CHECK(same_bits(k.y, first->y));
            CHECK(same_bits(k.dgamma, first->dgamma));
            CHECK(same_bits(k.dbeta, first->dbeta));
            CHECK(same_bits(k.dx, first->dx));
            CHECK(same_bits(k.dskip, first->dskip));
        });
    }
}

TEST_CASE("what x is multiplied with in the gradient of a norm's scale is a plain loop") {
    norm_laws::output_gradients_of_norms<cpu, float>();
    norm_laws::output_gradients_of_norms<cpu, double>();
}

}  // namespace cairn
