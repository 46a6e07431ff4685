#include "catch.hpp"
#include "device/cuda/loss_laws.hpp"
#include "oracle/losses.hpp"

#include <cairn/core/parameter.hpp>
#include <cairn/nn/loss/binary_cross_entropy.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/huber.hpp>
#include <cairn/nn/loss/mean_squared.hpp>

#include <cstring>
#include <limits>

using namespace cairn;
using Catch::Matchers::Contains;

static_assert(Loss<cross_entropy, float, std::int32_t> && Loss<cross_entropy, double, std::int32_t>);
static_assert(Loss<mean_squared, float, float> && Loss<huber, double, double> &&
              Loss<binary_cross_entropy, float, float>);

namespace {

template <class T>
tensor<T> normal(shape s, double scale, std::uint32_t stream) {
    tensor<T> t(s);
    fill(t.span(), {initializer::distribution::normal, scale, 0.0}, {5, stream, 0});
    return t;
}

template <class T>
tensor<T> unit(shape s, std::uint32_t stream) {
    tensor<T> t(s);
    fill(t.span(), {initializer::distribution::uniform, 0.5, 0.5}, {5, stream, 0});
    return t;
}

tensor<std::int32_t> labels_for(cairn::index_t rows, cairn::index_t classes) {
    tensor<std::int32_t> labels({rows});
    for (cairn::index_t i = 0; i < rows; ++i)
        labels[i] = static_cast<std::int32_t>(
            random_stream{5, 9, 0}.below(static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(i)));
    return labels;
}

template <class T>
std::vector<double> doubles(const tensor<T>& t) {
    return {t.span().begin(), t.span().end()};
}

// Central differences of value(x) at every element against the gradient.
template <class Value>
void require_gradient(const tensor<double>& x, const tensor<double>& gradient, Value value, double margin = 1e-8) {
    REQUIRE(gradient.shape() == x.shape());
    for (cairn::index_t i = 0; i < x.size(); ++i) {
        constexpr double h = 1e-5;
        tensor<double> moved = x.clone();
        moved[i] = x[i] + h;
        const double above = value(moved);
        moved[i] = x[i] - h;
        REQUIRE((above - value(moved)) / (2 * h) == Approx(gradient[i]).margin(margin).epsilon(1e-6));
    }
}

template <class T>
void require_near(const tensor<T>& got, const std::vector<double>& expected, double tolerance) {
    REQUIRE(static_cast<std::size_t>(got.size()) == expected.size());
    for (cairn::index_t i = 0; i < got.size(); ++i)
        REQUIRE(static_cast<double>(got[i]) ==
                Approx(expected[static_cast<std::size_t>(i)]).epsilon(tolerance).margin(tolerance));
}

tensor<double> matrix(shape s, const std::vector<double>& values) {
    tensor<double> t(s);
    std::copy(values.begin(), values.end(), t.data());
    return t;
}

}  // namespace

// The same numbers as libtorch 1.13 gives in double.
TEST_CASE("losses have known values and gradients") {
    const auto x = matrix({2, 3}, {1, 2, -1, 0.5, 0, 3});
    tensor<std::int32_t> y({2});
    y[0] = 1;
    y[1] = 0;
    const auto check = [&](const loss_result<double>& got, double value, const std::vector<double>& gradient) {
        CHECK(got.value == Approx(value).epsilon(1e-14));
        require_near(got.gradient, gradient, 1e-14);
    };
    check(cross_entropy{}(x.clone(), y), 1.4864425875687768,
          {0.12974823017120957, -0.1473077436508794, 0.017559513479669865, -0.46373927715962615, 0.021993240146028922,
           0.44174603701359716});
    check(cross_entropy{.label_smoothing = 0.1}(x.clone(), y), 1.51977592090211,
          {0.1130815635045429, -0.11397441031754607, 0.00089284681300319871, -0.43040594382629282,
           0.0053265734793622559, 0.4250793703469305});
    check(cross_entropy{0, {1, 2, 0.5}}(x.clone(), y), 1.1072991306352467,
          {0.1729976402282794, -0.19641032486783919, 0.023412684639559818, -0.3091595181064174, 0.014662160097352614,
           0.29449735800906474});
    check(cross_entropy{0.1, {1, 2, 0.5}}(x.clone(), y), 1.1371814188270712,
          {0.15467829410765666, -0.17155989466501262, 0.016881600557355936, -0.28653439896374661,
           -0.0073156927899137329, 0.29385009175366028});
    const auto t = matrix({2, 3}, {0, 1, 0.25, 1, 0.5, 0});
    const double third = 1.0 / 3;
    check(mean_squared{}(x.clone(), t), 2.1770833333333335,
          {third, third, -1.25 * third, -0.5 * third, -0.5 * third, 1});
    check(binary_cross_entropy{}(x.clone(), t), 1.0365438170655352,
          {0.12184309643833414, -0.019867153670352949, 0.0031569035616658505, -0.062923444799690906, 0,
           0.15876235447040557});
    check(huber{.delta = 0.75}(x.clone(), t), 0.63541666666666663, {0.125, 0.125, -0.125, -1.0 / 12, -1.0 / 12, 0.125});
}

TEST_CASE("cross-entropy equals the plain loop, and its gradient the differences") {
    const cairn::index_t rows = GENERATE(1, 2, 37), classes = GENERATE(1, 2, 10, 33);
    const double smoothing = GENERATE(0.0, 0.1, 1.0);
    const bool weighted = GENERATE(false, true);
    cross_entropy loss{smoothing, {}};
    for (cairn::index_t k = 0; weighted && k < classes; ++k)
        loss.class_weights.push_back(0.5 + 0.25 * static_cast<double>(k));
    const auto labels = labels_for(rows, classes);
    const std::vector<int> y(labels.span().begin(), labels.span().end());
    const auto x = normal<double>({rows, classes}, 2.0, 1);
    const auto value = [&](const tensor<double>& at) {
        return oracle::cross_entropy(doubles(at), y, smoothing, loss.class_weights);
    };

    const auto got = loss(x.share(), labels);
    CHECK(got.value == Approx(value(x)).epsilon(1e-12).margin(1e-14));
    CHECK(loss.value(x, labels) == got.value);
    require_gradient(x, got.gradient, value);

    const auto x32 = normal<float>({rows, classes}, 2.0, 1);
    const auto got32 = loss(x32.share(), labels);
    CHECK(got32.value == Approx(value(x)).epsilon(2e-6).margin(1e-6));
    require_near(got32.gradient, doubles(got.gradient), 3e-6);
}

TEST_CASE("cross-entropy by rows: parts of a batch add up, whatever their classes weigh") {
    const cairn::index_t rows = 10, classes = 4;
    const cross_entropy whole{.class_weights = {0.5, 3, 1, 0}, .by_rows = true},
        by_weight{.class_weights = {0.5, 3, 1, 0}};
    const auto x = normal<double>({rows, classes}, 2.0, 5);
    const auto labels = labels_for(rows, classes);
    double weights = 0;
    for (const int y : labels.span()) weights += whole.class_weights[static_cast<std::size_t>(y)];
    const auto got = whole(x.clone(), labels);
    CHECK(got.value == Approx(by_weight(x.clone(), labels).value * weights / rows));
    double sum = 0;
    for (const cairn::index_t first : {0, 3}) {
        const cairn::index_t n = first ? 7 : 3;
        const auto part = whole(x.slice(first * classes, {n, classes}).clone(), labels.slice(first, {n}));
        sum += part.value * static_cast<double>(n) / rows;
        for (cairn::index_t i = 0; i < n * classes; ++i)
            CHECK(part.gradient[i] * static_cast<double>(n) / rows ==
                  Approx(got.gradient[first * classes + i]).margin(1e-15));
    }
    CHECK(sum == Approx(got.value));
}

TEST_CASE("cross-entropy of images has one label for each pixel") {
    const auto x = normal<double>({2, 3, 5, 4}, 1.0, 1);
    const auto labels = labels_for(30, 4).reshaped({2, 3, 5});
    const auto got = cross_entropy{}(x.share(), labels),
               flat = cross_entropy{}(x.reshaped({30, 4}), labels.reshaped({30}));
    CHECK(got.gradient.shape() == x.shape());
    CHECK(got.value == flat.value);
}

TEST_CASE("losses stay finite for logits of 10 000") {
    for (const double big : {1e4, -1e4}) {
        tensor<std::int32_t> labels({2});
        labels[0] = 0;
        labels[1] = 1;
        const auto x = matrix({2, 2}, {big, 0, big, 0});
        const auto sure = cross_entropy{}(x.clone(), labels);
        CHECK(sure.value == Approx(5000));  // one row is right, the other off by 10 000
        require_near(sure.gradient,
                     big > 0 ? std::vector<double>{0, 0, 0.5, -0.5} : std::vector<double>{-0.5, 0.5, 0, 0}, 1e-15);

        const auto bce = binary_cross_entropy{}(matrix({1, 2}, {big, -big}), matrix({1, 2}, {0, 0}));
        CHECK(bce.value == Approx(5000));
        require_near(bce.gradient, big > 0 ? std::vector<double>{0.5, 0} : std::vector<double>{0, 0.5}, 1e-15);

        auto x32 = tensor<float>::filled({1, 2}, static_cast<float>(big));
        x32[1] = -x32[0];
        const auto bce32 = binary_cross_entropy{}(std::move(x32), tensor<float>::filled({1, 2}, 1.0f));
        CHECK(bce32.value == Approx(5000));
    }
}

TEST_CASE("element losses equal the plain loop, and their gradients the differences") {
    const cairn::index_t rows = GENERATE(1, 3, 50);
    const shape s{rows, 2, 3};
    const auto x = normal<double>(s, 1.0, 1), t = normal<double>(s, 1.0, 2);
    element_weights weights;
    if (GENERATE(false, true)) weights.outputs = {1, 0, 0.5, 2, 3, 0.25};
    if (GENERATE(false, true))
        for (cairn::index_t i = 0; i < rows; ++i) weights.samples.push_back(0.1 * static_cast<double>(i + 1));
    const auto n = static_cast<std::size_t>(rows);

    const auto squared = [&](const tensor<double>& at) {
        return oracle::mean_squared(doubles(at), doubles(t), n, weights.outputs, weights.samples);
    };
    const auto mse = mean_squared{weights}(x.share(), t);
    CHECK(mse.value == Approx(squared(x)).epsilon(1e-13));
    require_gradient(x, mse.gradient, squared);

    const double delta = GENERATE(0.3, 1.0);
    const auto bounded = [&](const tensor<double>& at) {
        return oracle::huber(doubles(at), doubles(t), delta, n, weights.outputs, weights.samples);
    };
    const auto robust = huber{delta, weights}(x.share(), t);
    CHECK(robust.value == Approx(bounded(x)).epsilon(1e-13));
    require_gradient(x, robust.gradient, bounded, 1e-6);
}

TEST_CASE("binary cross-entropy equals the plain loop, and its gradient the differences") {
    const cairn::index_t rows = GENERATE(1, 40);
    const auto x = normal<double>({rows, 7}, 4.0, 1), t = unit<double>({rows, 7}, 2);
    const auto value = [&](const tensor<double>& at) { return oracle::binary_cross_entropy(doubles(at), doubles(t)); };
    const auto got = binary_cross_entropy{}(x.share(), t);
    CHECK(got.value == Approx(value(x)).epsilon(1e-13));
    require_gradient(x, got.gradient, value);
    const auto big = normal<float>({300, 784}, 4.0, 1), target = unit<float>({300, 784}, 2);
    CHECK(binary_cross_entropy{}(big.share(), target).value ==
          Approx(oracle::binary_cross_entropy(doubles(big), doubles(target))).epsilon(1e-6));
}

TEST_CASE("a loss writes over the prediction only where it has no other owner") {
    const auto labels = labels_for(4, 3);
    const auto kept = normal<float>({4, 3}, 1.0, 1);
    const auto before = kept.clone();
    const auto a = cross_entropy{}(kept.share(), labels);
    CHECK(std::memcmp(kept.data(), before.data(), static_cast<std::size_t>(kept.bytes())) == 0);
    auto given = kept.clone();
    const float* block = given.data();
    const auto b = cross_entropy{}(std::move(given), labels);
    CHECK(b.gradient.data() == block);
    CHECK(std::memcmp(a.gradient.data(), b.gradient.data(), static_cast<std::size_t>(kept.bytes())) == 0);

    const auto target = normal<float>({4, 3}, 1.0, 2);
    auto prediction = kept.clone();
    block = prediction.data();
    CHECK(mean_squared{}(std::move(prediction), target).gradient.data() == block);
}

TEST_CASE("the number of threads changes no bit of a loss") {
    const int before = threads();
    const auto x = normal<float>({3000, 37}, 2.0, 1), t = unit<float>({3000, 37}, 2);
    const auto labels = labels_for(3000, 37);
    const auto run = [&](int n) {
        set_threads(n);
        std::vector<loss_result<float>> all;
        all.push_back(cross_entropy{0.1, {}}(x.share(), labels));
        all.push_back(mean_squared{}(x.share(), t));
        all.push_back(mean_squared{{std::vector<double>(37, 0.5), {}}}(x.share(), t));
        all.push_back(binary_cross_entropy{}(x.share(), t));
        return all;
    };
    const auto one = run(1), two = run(2), three = run(3);
    set_threads(before);
    for (std::size_t i = 0; i < one.size(); ++i)
        for (const auto* other : {&two[i], &three[i]}) {
            CHECK(one[i].value == other->value);
            CHECK(std::memcmp(one[i].gradient.data(), other->gradient.data(), static_cast<std::size_t>(x.bytes())) ==
                  0);
        }
}

TEST_CASE("losses of something that is not a number are not a number") {
    const float bad = GENERATE(std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity());
    auto x = normal<float>({40, 5}, 1.0, 1);
    x(31, 2) = bad;
    CHECK_FALSE(std::isfinite(cross_entropy{}(x.share(), labels_for(40, 5)).value));
    CHECK_FALSE(std::isfinite(mean_squared{}(x.share(), unit<float>({40, 5}, 2)).value));
    CHECK_FALSE(std::isfinite(binary_cross_entropy{}(x.share(), unit<float>({40, 5}, 2)).value));
    CHECK_FALSE(std::isfinite(huber{}(x.share(), unit<float>({40, 5}, 2)).value));
}

TEST_CASE("losses leave out rows with the ignored label") { loss_laws::ignored_rows<cpu>(); }

TEST_CASE("losses notice that their weights have changed") { loss_laws::changed_weights<cpu>(); }

TEST_CASE("losses name what does not fit") {
    const auto x = normal<float>({4, 3}, 1.0, 1);
    auto labels = labels_for(4, 3);
    CHECK_THROWS_WITH(cross_entropy{}(x.share(), labels_for(5, 3)), Contains("5 labels") && Contains("(4, 3)"));
    CHECK_THROWS_WITH(cross_entropy{}(x.reshaped({12}), labels), Contains("(12)"));
    CHECK_THROWS_WITH(cross_entropy{}(tensor<float>({0, 3}), tensor<std::int32_t>({0})), Contains("(0, 3)"));
    CHECK_THROWS_WITH((cross_entropy{0, {1, 2}}(x.share(), labels)), Contains("2 class weights for 3 classes"));
    CHECK_THROWS_WITH((cross_entropy{0, {0, 0, 0}}(x.share(), labels)), Contains("sum to 0"));
    CHECK_THROWS_WITH((cross_entropy{1.5, {}}(x.share(), labels)), Contains("1.5"));
    for (const bool weighted : {false, true})
        for (const std::int32_t bad : {-1, 3, 1000}) {
            labels[2] = bad;
            const cross_entropy loss{0, weighted ? std::vector<double>{1, 2, 3} : std::vector<double>{}};
            CHECK_THROWS_WITH(loss(x.share(), labels),
                              Contains(concat("label ", bad, " of row 2")) && Contains("[0, 3)"));
        }

    cross_entropy none_counts;
    none_counts.ignore_index = 1;
    for (index_t i = 0; i < 4; ++i) labels[i] = 1;
    CHECK_THROWS_WITH(none_counts(x.share(), labels), Contains("of 4 rows none has a label that counts"));
    labels[2] = 3;
    CHECK_THROWS_WITH(none_counts(x.share(), labels), Contains("label 3 of row 2"));

    const auto t = unit<float>({3, 4}, 2);
    CHECK_THROWS_WITH(mean_squared{}(x.share(), t), Contains("(4, 3)") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(huber{}(x.share(), t), Contains("huber") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(binary_cross_entropy{}(x.share(), t), Contains("(4, 3)") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(huber{.delta = 0}(x.share(), x), Contains("delta 0"));
    CHECK_THROWS_WITH((mean_squared{{{1, 2}, {}}}(x.share(), x)), Contains("2 output weights for 3 outputs"));
    CHECK_THROWS_WITH((mean_squared{{{}, {1, 2}}}(x.share(), x)), Contains("2 sample weights for 4 samples"));
    auto outside = unit<float>({4, 3}, 2);
    outside(2, 1) = 1.5f;
    CHECK_THROWS_WITH(binary_cross_entropy{}(x.share(), outside), Contains("target 1.5 of sample 2, output 1"));
    outside(2, 1) = std::nanf("");
    CHECK_THROWS_WITH(binary_cross_entropy{}(x.share(), outside), Contains("nan of sample 2"));
}
