#pragma once
// Mean and variance from totals that a convolution left, Σ x and Σ x² in float: what every grid device obeys. Compared
// with plain loops in double, within the bound of device/cuda/batch_norm.hpp: var is off by (1 + 2 mean² / var) ε var,
// ε of the totals, and never by more than 513 ε.

#include "device/cuda/law_numbers.hpp"
#include "oracle/norm.hpp"

#include <limits>

namespace cairn::totals_laws {

using namespace kernel_laws;

template <class T>
tensor<T> far_from_zero(index_t rows, index_t channels, float mean, std::uint32_t stream) {
    const tensor<float> wide = drawn<float>({rows, channels}, stream);
    tensor<T> x({rows, channels});
    for (index_t i = 0; i < x.size(); ++i) x[i] = T(wide[i] + mean);
    return x;
}

/// Sums in float, one term after another.
template <class T>
tensor<float> totals_of(const tensor<T>& x) {
    const index_t channels = x.extent(1);
    tensor<float> totals = tensor<float>::zeros({2, channels});
    for (index_t i = 0; i < x.size(); ++i) {
        const float v = float{x[i]};
        totals[i % channels] += v;
        totals[channels + i % channels] += v * v;
    }
    return totals;
}

template <class D>
struct moments_on {
    tensor<float> mean, var;

    template <class T>
    moments_on(const tensor<T>& x, const tensor<float>& totals) {
        const index_t rows = x.extent(0), channels = x.extent(1);
        const auto d_x = on_device<D>(x);
        const auto d_totals = on_device<D>(totals);
        tensor<float, D> m({channels}), v({channels});
        batch_statistics_of_totals(D{}, rows, channels, d_x.data(), d_totals.data(), m.data(), v.data());
        mean = m.on_host(), var = v.on_host();
    }
};

/// Whatever mean² / var is, on both sides of 256.
template <class D, class T>
void within_the_bound() {
    constexpr index_t rows = 500;
    constexpr double epsilon = rows * 0x1p-24;  // of sums in float
    for (const index_t channels : {3, 8})
        for (const float far : {0.0f, 1.0f, 8.0f, 11.0f, 64.0f}) {
            CAPTURE(channels, far);
            const tensor<T> x = far_from_zero<T>(rows, channels, far, 61);
            const moments_on<D> got(x, totals_of(x));
            std::vector<double> all;
            for (index_t i = 0; i < x.size(); ++i) all.push_back(double(float{x[i]}));
            for (index_t c = 0; c < channels; ++c) {
                const auto is =
                    oracle::moments_of(all, static_cast<std::size_t>(c), static_cast<std::size_t>(channels), rows);
                const double square = is.mean * is.mean,
                             share = square > 256 * is.var ? 0x1p-23 : (1 + 2 * square / is.var) * epsilon;
                CHECK(share <= 513 * epsilon);
                CHECK(std::abs(double(got.var[c]) - is.var) <= 1.001 * share * is.var);
                CHECK(std::abs(double(got.mean[c]) - is.mean) <= epsilon * std::sqrt(square + is.var));
            }
        }
}

/// Totals that have no digits of the variance left, or are no numbers, are not used: the result is that of x.
template <class D, class T>
void useless_totals() {
    constexpr index_t rows = 300, channels = 5;
    tensor<T> x = far_from_zero<T>(rows, channels, 2, 62);
    for (index_t r = 0; r < rows; ++r) x[r * channels] = T(2.5f), x[r * channels + 1] = T(0.0f);
    x[4] = T(std::numeric_limits<float>::quiet_NaN());
    tensor<float> totals = totals_of(x);
    totals[2] = std::numeric_limits<float>::infinity();
    totals[channels + 3] = std::numeric_limits<float>::quiet_NaN();
    const moments_on<D> got(x, totals);
    const auto d_x = on_device<D>(x);
    tensor<float, D> m({channels}), v({channels});
    batch_statistics(D{}, rows, channels, d_x.data(), m.data(), v.data());
    const tensor<float> mean = m.on_host(), var = v.on_host();
    CHECK(got.mean[0] == 2.5f);
    CHECK(got.var[0] == 0);
    CHECK(got.mean[1] == 0);
    CHECK(got.var[1] == 0);
    for (const index_t c : {2, 3}) {
        CHECK(std::abs(got.mean[c] - mean[c]) <= 1e-6f * std::abs(mean[c]));
        CHECK(std::abs(got.var[c] - var[c]) <= 1e-5f * var[c]);
    }
    CHECK(std::isnan(got.mean[4]));
    CHECK(std::isnan(mean[4]));
    CHECK(got.var[4] == var[4]);
}

template <class D>
std::vector<law> all() {
    return {
        {"variance from totals is within its bound, bfloat16", within_the_bound<D, bfloat16>},
        {"variance from totals is within its bound, float16", within_the_bound<D, float16>},
        {"totals without digits are not used, bfloat16", useless_totals<D, bfloat16>},
        {"totals without digits are not used, float16", useless_totals<D, float16>},
    };
}

}  // namespace cairn::totals_laws
