#include "catch.hpp"

#include <cairn/core/parameter.hpp>
#include <cairn/nn/metrics.hpp>

#include <algorithm>
#include <limits>
#include <numeric>

using namespace cairn;
using Catch::Matchers::Contains;

TEST_CASE("top-k accuracy equals sorting") {
    const cairn::index_t rows = 200, classes = 12;
    tensor<float> x({rows, classes});
    fill(x.span(), {initializer::distribution::normal, 1.0, 0.0}, {1, 0, 0});
    for (float& value : x.span()) value = std::round(value * 2);  // many equal logits
    tensor<std::int32_t> labels({rows});
    for (cairn::index_t i = 0; i < rows; ++i) labels[i] = static_cast<std::int32_t>(i * 7 % classes);
    for (const cairn::index_t k : {1, 2, 5, 12}) {
        cairn::index_t expected = 0;
        for (cairn::index_t row = 0; row < rows; ++row) {
            std::vector<std::int32_t> order(12);
            std::iota(order.begin(), order.end(), 0);
            std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return x(row, a) > x(row, b); });
            expected += std::find(order.begin(), order.begin() + k, labels[row]) != order.begin() + k;
        }
        CHECK(top_k_correct(x, labels, k) == expected);
    }
    CHECK(top_k_correct(x, labels, 12) == rows);
}

TEST_CASE("a row with a logit that is not a number is wrong") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    auto x = tensor<float>::filled({2, 3}, 0.0f);
    x(0, 0) = x(1, 0) = 1;
    const auto labels = tensor<std::int32_t>::filled({2}, 0);
    CHECK(top_k_correct(x, labels) == 2);
    x(0, 0) = nan;
    CHECK(top_k_correct(x, labels) == 1);
    x(1, 2) = nan;
    CHECK(top_k_correct(x, labels, 3) == 0);
}

TEST_CASE("top-k accuracy names what does not fit") {
    const auto x = tensor<float>::zeros({2, 3});
    CHECK_THROWS_WITH(top_k_correct(x, tensor<std::int32_t>::filled({3}, 0)),
                      Contains("3 labels") && Contains("(2, 3)"));
    CHECK_THROWS_WITH(top_k_correct(x, tensor<std::int32_t>::filled({2}, 3)), Contains("label 3 of row 0"));
}

// Targets 1, 2, 3, 6: mean 3, spread 4 + 1 + 0 + 9 = 14. Errors 1, 0, -1, 2: squares 6, sizes 4.
TEST_CASE("regression metrics were worked out by hand") {
    const double offset = GENERATE(0.0, 1e8);  // must not cancel
    regression_metrics metrics(2);
    for (const int first : {0, 2}) {  // two batches
        tensor<double> p({2, 2}), t({2, 2});
        for (int i = 0; i < 2; ++i) {
            constexpr std::array target{1.0, 2.0, 3.0, 6.0}, error{1.0, 0.0, -1.0, 2.0};
            const auto at = static_cast<std::size_t>(first + i);
            t(i, 0) = target[at] + offset;
            p(i, 0) = target[at] + error[at] + offset;
            t(i, 1) = target[at];
            p(i, 1) = 3;  // the mean
        }
        metrics.add(p, t);
    }
    CHECK(metrics.samples() == 4);
    CHECK(metrics.r2(0) == Approx(1 - 6.0 / 14));
    CHECK(metrics.r2(1) == Approx(0).margin(1e-12));
    CHECK(metrics.r2() == Approx((1 - 6.0 / 14) / 2));
    CHECK(metrics.mae(0) == Approx(1));
    CHECK(metrics.mae(1) == Approx(1.5));
    CHECK(metrics.rmse(0) == Approx(std::sqrt(1.5)));
}

TEST_CASE("R2 of targets that do not vary is not a number") {
    regression_metrics metrics(1);
    CHECK(std::isnan(metrics.r2()));
    metrics.add(tensor<float>::filled({3, 1}, 1.0f), tensor<float>::filled({3, 1}, 2.0f));
    CHECK(std::isnan(metrics.r2()));
    CHECK(metrics.mae() == 1);
    CHECK_THROWS_WITH(metrics.add(tensor<float>({3, 2}), tensor<float>({3, 2})),
                      Contains("(3, 2)") && Contains("(samples, 1)"));
}
