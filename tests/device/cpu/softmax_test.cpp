#include "catch.hpp"

#include <cairn/device/cpu/softmax.hpp>

#include "device/cpu/kernel_numbers.hpp"
#include "oracle/softmax.hpp"

namespace cairn {

using namespace kernel_tests;

namespace {

template <class T>
oracle::reals row_of(const std::vector<T>& x, index_t row, index_t classes) {
    const auto begin = x.begin() + row * classes;
    return {begin, begin + classes};
}

}  // namespace

TEMPLATE_TEST_CASE("softmax and its gradient", "[softmax]", float, double) {
    using T = TestType;
    for (const index_t classes : {1, 2, 10, 16, 33, 1000})
        for (const double scale : {1.0, 30.0}) {
            const index_t rows = 7;
            CAPTURE(classes, scale);
            const auto x = draw<T>(rows * classes, 1, scale), dy = draw<T>(rows * classes, 2);
            std::vector<T> y(x.size()), dx(x.size());
            softmax_forward(cpu{}, rows, classes, x.data(), y.data());
            softmax_backward(cpu{}, rows, classes, y.data(), dy.data(), dx.data());
            for (index_t r = 0; r < rows; ++r) {
                const oracle::reals p = oracle::softmax(row_of(x, r, classes));
                CHECK(distance(row_of(y, r, classes), p) <= eps<T>(16));
                CHECK(distance(row_of(dx, r, classes), oracle::softmax_gradient(p, row_of(dy, r, classes))) <=
                      eps<T>(64));
            }
            std::vector<T> in_place = x;
            softmax_forward(cpu{}, rows, classes, in_place.data(), in_place.data());
            CHECK(same_bits(in_place, y));
        }
}

TEMPLATE_TEST_CASE("softmax: extreme and non-finite logits", "[softmax]", float, double) {
    using T = TestType;
    constexpr T infinity = std::numeric_limits<T>::infinity(), nan = std::numeric_limits<T>::quiet_NaN();
    const std::vector<T> x{10000, -10000,    10000,     0,         0,        -infinity, 1, nan,
                           2,     -infinity, -infinity, -infinity, infinity, 0,         0};
    std::vector<T> y(x.size());
    softmax_forward(cpu{}, 5, 3, x.data(), y.data());
    CHECK(distance(std::vector<T>(y.begin(), y.begin() + 6), std::vector<double>{0.5, 0, 0.5, 0.5, 0.5, 0}) <=
          eps<T>(4));
    for (std::size_t i = 6; i < 9; ++i) CHECK(std::isnan(y[i]));
}

TEMPLATE_TEST_CASE("softmax_cross_entropy against the plain sum over targets", "[softmax]", float, double) {
    using T = TestType;
    for (const index_t classes : {1, 2, 10, 17, 1000})
        for (const double smoothing : {0.0, 0.1, 1.0})
            for (const bool weighted : {false, true}) {
                CAPTURE(classes, smoothing, weighted);
                const index_t rows = 9;
                const auto x = draw<T>(rows * classes, 3, 4);
                std::vector<T> weights(std::size_t(classes), T(1));
                if (weighted)
                    for (std::size_t k = 0; k < weights.size(); ++k) weights[k] = static_cast<T>(0.5 + double(k % 5));
                std::vector<std::int32_t> labels(rows);
                for (index_t r = 0; r < rows; ++r) labels[std::size_t(r)] = static_cast<std::int32_t>(r * 7 % classes);
                const T scale = T(0.25);
                std::vector<T> loss(rows), gradient(x.size()), loss_alone(rows);
                const T* const w = weighted ? weights.data() : nullptr;
                softmax_cross_entropy<T>(cpu{}, rows, classes, x.data(), labels.data(), T(smoothing), loss.data(),
                                         gradient.data(), scale, w);
                softmax_cross_entropy<T>(cpu{}, rows, classes, x.data(), labels.data(), T(smoothing), loss_alone.data(),
                                         nullptr, scale, w);
                double total = 0;  // of weights × targets: the scale of loss and gradient
                for (const T v : weights) total = std::max(total, double(v));
                for (index_t r = 0; r < rows; ++r) {
                    const auto expected = oracle::cross_entropy(
                        row_of(x, r, classes), std::size_t(labels[std::size_t(r)]),
                        static_cast<long double>(T(smoothing)), oracle::reals(weights.begin(), weights.end()));
                    CHECK(std::abs(double(loss[std::size_t(r)] - expected.loss)) <= total * 20 * eps<T>(16));
                    CHECK(std::abs(double(loss_alone[std::size_t(r)] - expected.loss)) <= total * 20 * eps<T>(16));
                    oracle::reals scaled = expected.gradient;
                    for (auto& g : scaled) g *= 0.25L;
                    CHECK(distance(row_of(gradient, r, classes), scaled) <= total * eps<T>(16));
                }
                std::vector<T> in_place = x;
                softmax_cross_entropy<T>(cpu{}, rows, classes, in_place.data(), labels.data(), T(smoothing),
                                         loss.data(), in_place.data(), scale, w);
                CHECK(same_bits(in_place, gradient));
            }
}

TEST_CASE("softmax_cross_entropy: errors name row and label", "[softmax]") {
    using Catch::Matchers::Contains;
    const std::vector<float> x(12);
    std::vector<float> loss(3), gradient(12);
    const auto run = [&](std::vector<std::int32_t> labels, float smoothing) {
        softmax_cross_entropy(cpu{}, 3, 4, x.data(), labels.data(), smoothing, loss.data(), gradient.data(), 1.0f);
    };
    CHECK_THROWS_WITH(run({0, 4, 1}, 0.0f), Contains("label 4 of row 1") && Contains("[0, 4)"));
    CHECK_THROWS_WITH(run({0, 1, -1}, 0.0f), Contains("label -1 of row 2"));
    CHECK_THROWS_WITH(run({nothing_ignored, 1, 1}, 0.0f), Contains("label -2147483648 of row 0"));
    CHECK_THROWS_WITH(run({0, 1, 1}, 1.5f), Contains("smoothing 1.5"));
}

TEST_CASE("softmax: the same bits on any number of threads", "[softmax]") {
    const index_t rows = 3000, classes = 37;
    const auto x = draw<float>(rows * classes, 5);
    const std::vector<std::int32_t> labels(std::size_t(rows), 3);
    std::vector<float> first, first_loss;
    on_several_threads([&](int n) {
        std::vector<float> g(x.size()), loss(static_cast<std::size_t>(rows));
        softmax_cross_entropy(cpu{}, rows, classes, x.data(), labels.data(), 0.1f, loss.data(), g.data(), 1.0f);
        if (n == 1) first = g, first_loss = loss;
        CHECK(same_bits(g, first));
        CHECK(same_bits(loss, first_loss));
    });
}

}  // namespace cairn
