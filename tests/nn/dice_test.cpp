#include "catch.hpp"
#include "messages.hpp"
#include "oracle/losses.hpp"

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/nn/loss/dice.hpp>

#include <cstring>
#include <limits>

namespace cairn {
namespace dice_tests {

static_assert(Loss<dice, float, std::int32_t> && Loss<dice, double, std::int32_t>);

template <class T>
tensor<T> normals(const shape& s) {
    tensor<T> t(s);
    const random_stream random{3, 1, 4};
    for (index_t i = 0; i < t.size(); ++i)
        t[i] = static_cast<T>(static_cast<float>(2 * random.normal(static_cast<std::uint64_t>(i))));
    return t;
}

tensor<std::int32_t> labels_below(index_t classes, const shape& s) {
    tensor<std::int32_t> t(s);
    for (index_t i = 0; i < t.size(); ++i)
        t[i] = static_cast<std::int32_t>(
            random_stream{3, 2, 4}.below(static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(i)));
    return t;
}

double expected(const dice& loss, const tensor<double>& x, const tensor<std::int32_t>& y) {
    return oracle::dice({x.span().begin(), x.span().end()}, {y.span().begin(), y.span().end()},
                        static_cast<std::size_t>(x.extent(0)), loss.smooth, loss.dice_weight, loss.cross_entropy_weight,
                        static_cast<std::size_t>(loss.first_class));
}

TEST_CASE("dice: equals the plain loop, and its gradient the differences", "[dice]") {
    const index_t samples = GENERATE(1, 3), classes = GENERATE(2, 4);
    const auto loss = GENERATE(dice{}, dice{.smooth = 0.1, .dice_weight = 0.5, .cross_entropy_weight = 2},
                               dice{.dice_weight = 0, .cross_entropy_weight = 1}, dice{.smooth = 2, .first_class = 0});
    const tensor<double> x = normals<double>({samples, 3, 2, classes});
    const tensor<std::int32_t> y = labels_below(classes, {samples, 6});
    const auto [value, gradient] = loss(x.clone(), y);
    CHECK(value == Approx(expected(loss, x, y)).epsilon(1e-13));
    REQUIRE(gradient.shape() == x.shape());
    for (index_t i = 0; i < x.size(); ++i) {
        constexpr double h = 1e-5;
        tensor<double> moved = x.clone();
        moved[i] = x[i] + h;
        const double above = expected(loss, moved, y);
        moved[i] = x[i] - h;
        REQUIRE((above - expected(loss, moved, y)) / (2 * h) == Approx(gradient[i]).margin(1e-9).epsilon(1e-6));
    }
}

TEST_CASE("dice: float is double, over many blocks and any threads", "[dice]") {
    const shape s{2, 20, 30, 17, 3};  // 10,200 positions
    const dice loss{.cross_entropy_weight = 1};
    const tensor<std::int32_t> y = labels_below(3, {2, 10'200});
    const auto exact = loss(normals<double>(s), y);
    CHECK(exact.value == Approx(expected(loss, normals<double>(s), y)).epsilon(1e-12));
    const tensor<float> x = normals<float>(s), before = x.clone();
    const auto held = loss(x.share(), y);  // x has another owner
    CHECK(std::memcmp(x.data(), before.data(), static_cast<std::size_t>(x.bytes())) == 0);
    CHECK(held.value == Approx(exact.value).epsilon(1e-6));
    for (index_t i = 0; i < x.size(); ++i)
        REQUIRE(static_cast<double>(held.gradient[i]) == Approx(exact.gradient[i]).epsilon(2e-5).margin(1e-10));
    for (const int threads : {1, 3}) {
        const threads_for_now now(threads);
        const auto again = loss(x.clone(), y);
        CHECK(again.value == held.value);
        CHECK(std::memcmp(again.gradient.data(), held.gradient.data(), static_cast<std::size_t>(x.bytes())) == 0);
    }
}

TEST_CASE("dice: a class that a sample lacks, certain predictions, and what does not fit", "[dice]") {
    // Background alone, predicted with certainty: nothing is wrong.
    tensor<double> x({1, 4, 2});
    for (index_t v = 0; v < 4; ++v) x[2 * v] = 1000, x[2 * v + 1] = -1000;
    tensor<std::int32_t> none = tensor<std::int32_t>::zeros({1, 4});
    const auto right = dice{.cross_entropy_weight = 1}(x.clone(), none);
    CHECK(right.value == Approx(0).margin(1e-12));
    for (const double g : right.gradient.span()) CHECK(g == Approx(0).margin(1e-12));
    // Certain and wrong: Dice is s / (P + G + s), cross-entropy the difference of the logits.
    for (std::int32_t& label : none.span()) label = 1;
    CHECK(dice{}(x.clone(), none).value == Approx(1 - 1.0 / 5));
    CHECK(dice{.dice_weight = 0, .cross_entropy_weight = 1}(x.clone(), none).value == Approx(2000));
    x[3] = std::numeric_limits<double>::quiet_NaN();
    CHECK(std::isnan(static_cast<double>(dice{}(x.clone(), none).value)));

    const auto why = [](const dice& loss, const shape& logits, const shape& labels, std::int32_t label = 0) {
        tensor<std::int32_t> y = tensor<std::int32_t>::zeros(labels);
        y[0] = label;
        return test::message_of([&] { loss(tensor<float>::zeros(logits), y); });
    };
    CHECK(test::contains(why({}, {2, 3, 2}, {2, 2}), "4 labels"));
    CHECK(test::contains(why({}, {6, 2}, {6}), "(6, 2)"));
    CHECK(test::contains(why({}, {2, 3, 2}, {2, 3}, 2), "label 2 of position 0 is not in [0, 2)"));
    CHECK(test::contains(why({.smooth = 0}, {2, 3, 2}, {2, 3}), "smooth 0"));
    CHECK(test::contains(why({.first_class = 2}, {2, 3, 2}, {2, 3}), "classes from 2 on, of 2"));
}

}  // namespace dice_tests
}  // namespace cairn
