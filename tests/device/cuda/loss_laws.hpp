#pragma once
// What losses of every grid device obey: known values, plain loops, extreme and undefined numbers, handles that others
// hold, errors, and steps that can be recorded. T: what the device computes losses in.

#include "device/cuda/law_numbers.hpp"
#include "oracle/losses.hpp"

#include <cairn/core/captured_graph.hpp>
#include <cairn/nn/loss/answer_cross_entropy.hpp>
#include <cairn/nn/loss/binary_cross_entropy.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/dice.hpp>
#include <cairn/nn/loss/huber.hpp>
#include <cairn/nn/loss/mean_squared.hpp>

namespace cairn::loss_laws {

using namespace kernel_laws;
using Catch::Matchers::Contains;

template <class T>
tensor<T> matrix(shape s, const std::vector<double>& values) {
    return of_numbers<T>(values).reshaped(s);
}

template <class D>
tensor<std::int32_t, D> labels_of(const std::vector<std::int32_t>& values) {
    tensor<std::int32_t> t({static_cast<index_t>(values.size())});
    std::copy(values.begin(), values.end(), t.data());
    return on_device<D>(t);
}

inline std::vector<std::int32_t> drawn_labels(index_t rows, index_t classes) {
    std::vector<std::int32_t> labels;
    for (index_t i = 0; i < rows; ++i)
        labels.push_back(static_cast<std::int32_t>(
            random_stream{seed(), 9, 0}.below(static_cast<std::uint64_t>(classes), static_cast<std::uint64_t>(i))));
    return labels;
}

template <class T, class D>
void check_result(const loss_result<T, D>& got, double value, const std::vector<double>& gradient, double tolerance) {
    CHECK(static_cast<double>(got.value) == Approx(value).epsilon(tolerance).margin(tolerance));
    check_near(got.gradient, gradient, tolerance);
}

/// Central differences of value(x) at every element against the gradient.
template <class Value>
void check_gradient(const tensor<double>& x, const tensor<double>& gradient, Value value, double margin = 1e-8) {
    REQUIRE(gradient.shape() == x.shape());
    std::vector<double> at = doubles(x), differences;
    constexpr double h = 1e-5;
    for (double& v : at) {
        const double before = v;
        v = before + h;
        const double above = value(at);
        v = before - h;
        differences.push_back((above - value(at)) / (2 * h));
        v = before;
    }
    check_near(gradient, differences, margin);
}

/// The same numbers as libtorch 1.13 gives in double.
template <class D, class T>
void known_values() {
    const double tolerance = sizeof(T) == 8 ? 1e-14 : 1e-6;
    const auto x = matrix<T>({2, 3}, {1, 2, -1, 0.5, 0, 3});
    const auto y = labels_of<D>({1, 0});
    const auto given = [&] { return on_device<D>(x); };
    check_result(cross_entropy{}(given(), y), 1.4864425875687768,
                 {0.12974823017120957, -0.1473077436508794, 0.017559513479669865, -0.46373927715962615,
                  0.021993240146028922, 0.44174603701359716},
                 tolerance);
    check_result(cross_entropy{.label_smoothing = 0.1}(given(), y), 1.51977592090211,
                 {0.1130815635045429, -0.11397441031754607, 0.00089284681300319871, -0.43040594382629282,
                  0.0053265734793622559, 0.4250793703469305},
                 tolerance);
    check_result(cross_entropy{0, {1, 2, 0.5}}(given(), y), 1.1072991306352467,
                 {0.1729976402282794, -0.19641032486783919, 0.023412684639559818, -0.3091595181064174,
                  0.014662160097352614, 0.29449735800906474},
                 tolerance);
    check_result(cross_entropy{0.1, {1, 2, 0.5}}(given(), y), 1.1371814188270712,
                 {0.15467829410765666, -0.17155989466501262, 0.016881600557355936, -0.28653439896374661,
                  -0.0073156927899137329, 0.29385009175366028},
                 tolerance);
    const auto t = on_device<D>(matrix<T>({2, 3}, {0, 1, 0.25, 1, 0.5, 0}));
    const double third = 1.0 / 3;
    check_result(mean_squared{}(given(), t), 2.1770833333333335,
                 {third, third, -1.25 * third, -0.5 * third, -0.5 * third, 1}, tolerance);
    check_result(binary_cross_entropy{}(given(), t), 1.0365438170655352,
                 {0.12184309643833414, -0.019867153670352949, 0.0031569035616658505, -0.062923444799690906, 0,
                  0.15876235447040557},
                 tolerance);
    check_result(huber{.delta = 0.75}(given(), t), 0.63541666666666663,
                 {0.125, 0.125, -0.125, -1.0 / 12, -1.0 / 12, 0.125}, tolerance);
}

template <class D>
void cross_entropy_is_the_plain_loop() {
    for (const index_t rows : {1, 9})
        for (const index_t classes : {1, 2, 33})
            for (const double smoothing : {0.0, 0.1, 1.0})
                for (const bool weighted : {false, true}) {
                    CAPTURE(rows, classes, smoothing, weighted);
                    cross_entropy loss{smoothing, {}};
                    for (index_t k = 0; weighted && k < classes; ++k)
                        loss.class_weights.push_back(0.5 + 0.25 * static_cast<double>(k));
                    const auto y = drawn_labels(rows, classes);
                    const auto labels = labels_of<D>(y);
                    const auto x = drawn<double>({rows, classes}, 1, 2);
                    const auto value = [&](const std::vector<double>& at) {
                        return oracle::cross_entropy(at, {y.begin(), y.end()}, smoothing, loss.class_weights);
                    };
                    const auto d_x = on_device<D>(x);
                    const auto got = loss(d_x.share(), labels);
                    CHECK(static_cast<double>(got.value) == Approx(value(doubles(x))).epsilon(1e-12).margin(1e-14));
                    CHECK(loss.value(d_x, labels) == static_cast<double>(got.value));
                    const tensor<double> gradient = got.gradient.on_host();
                    check_gradient(x, gradient, value);

                    tensor<float> x32(x.shape());
                    for (index_t i = 0; i < x.size(); ++i) x32[i] = static_cast<float>(x[i]);
                    const auto got32 = loss(on_device<D>(x32), labels);
                    CHECK(static_cast<double>(got32.value) == Approx(value(doubles(x32))).epsilon(2e-6).margin(1e-6));
                    check_near(got32.gradient, doubles(gradient), 3e-6);
                }
}

/// One label for each pixel.
template <class D, class T>
void cross_entropy_of_images() {
    const auto x = on_device<D>(drawn<T>({2, 3, 5, 4}, 1));
    const auto labels = labels_of<D>(drawn_labels(30, 4));
    for (const cross_entropy& loss : {cross_entropy{}, cross_entropy{0.1, {1, 2, 3, 0.5}}}) {
        const auto got = loss(x.share(), labels.reshaped({2, 3, 5})), flat = loss(x.reshaped({30, 4}), labels);
        CHECK(got.gradient.shape() == x.shape());
        CHECK(static_cast<double>(got.value) == static_cast<double>(flat.value));
        CHECK(same_bits(got.gradient, flat.gradient.reshaped(x.shape())));
    }
}

template <class D, class T>
void large_logits() {
    for (const double big : {1e4, -1e4}) {
        const auto labels = labels_of<D>({0, 1});
        const auto sure = cross_entropy{}(on_device<D>(matrix<T>({2, 2}, {big, 0, big, 0})), labels);
        // One row is right, the other off by 10 000.
        check_result(sure, 5000, big > 0 ? std::vector<double>{0, 0, 0.5, -0.5} : std::vector<double>{-0.5, 0.5, 0, 0},
                     1e-15);
        for (const double target : {0.0, 1.0}) {
            const auto bce = binary_cross_entropy{}(on_device<D>(matrix<T>({1, 2}, {big, -big})),
                                                    on_device<D>(tensor<T>::filled({1, 2}, static_cast<T>(target))));
            const double sign = target > 0 ? -0.5 : 0.5;
            check_result(bce, 5000,
                         (big > 0) == (target == 0) ? std::vector<double>{sign, 0} : std::vector<double>{0, sign},
                         1e-15);
        }
    }
}

template <class D>
void element_losses_are_the_plain_loop() {
    for (const index_t rows : {1, 3, 50})
        for (const bool outputs : {false, true})
            for (const bool samples : {false, true})
                for (const double delta : {0.3, 1.0}) {
                    CAPTURE(rows, outputs, samples, delta);
                    const shape s{rows, 2, 3};
                    const auto x = drawn<double>(s, 1), t = drawn<double>(s, 2);
                    element_weights weights;
                    if (outputs) weights.outputs = {1, 0, 0.5, 2, 3, 0.25};
                    for (index_t i = 0; samples && i < rows; ++i)
                        weights.samples.push_back(0.1 * static_cast<double>(i + 1));
                    const auto n = static_cast<std::size_t>(rows);
                    const auto d_t = on_device<D>(t);
                    const auto squared = [&](const std::vector<double>& at) {
                        return oracle::mean_squared(at, doubles(t), n, weights.outputs, weights.samples);
                    };
                    const auto mse = mean_squared{weights}(on_device<D>(x), d_t);
                    CHECK(static_cast<double>(mse.value) == Approx(squared(doubles(x))).epsilon(1e-13));
                    check_gradient(x, mse.gradient.on_host(), squared);
                    const auto bounded = [&](const std::vector<double>& at) {
                        return oracle::huber(at, doubles(t), delta, n, weights.outputs, weights.samples);
                    };
                    const auto robust = huber{delta, weights}(on_device<D>(x), d_t);
                    CHECK(static_cast<double>(robust.value) == Approx(bounded(doubles(x))).epsilon(1e-13));
                    check_gradient(x, robust.gradient.on_host(), bounded, 1e-6);
                }
}

template <class D>
void binary_cross_entropy_is_the_plain_loop() {
    const auto unit = [](tensor<double> t) {
        for (double& v : t.span()) v = 0.5 + 0.5 * v;
        return t;
    };
    for (const index_t rows : {1, 40}) {
        const auto x = drawn<double>({rows, 7}, 1, 4), t = unit(spread<double>({rows, 7}));
        const auto value = [&](const std::vector<double>& at) { return oracle::binary_cross_entropy(at, doubles(t)); };
        const auto got = binary_cross_entropy{}(on_device<D>(x), on_device<D>(t));
        CHECK(static_cast<double>(got.value) == Approx(value(doubles(x))).epsilon(1e-13));
        check_gradient(x, got.gradient.on_host(), value);
    }
}

template <class D>
void answers_are_the_plain_loop() {
    for (const index_t rows : {1, 40}) {
        const auto x = drawn<double>({rows, 7}, 1, 4);
        tensor<double> t({rows, 7});
        for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<double>(i * i % 3) - 1;  // −1, 0 and 1
        const auto value = [&](const std::vector<double>& at) { return oracle::answer_cross_entropy(at, doubles(t)); };
        const auto got = answer_cross_entropy{}(on_device<D>(x), on_device<D>(t));
        CHECK(static_cast<double>(got.value) == Approx(value(doubles(x))).epsilon(1e-12));
        const tensor<double> gradient = got.gradient.on_host();
        check_gradient(x, gradient, value);
        for (index_t i = 0; i < t.size(); ++i)
            if (t[i] < 0) CHECK(gradient[i] == 0);
    }
    const auto of = [](double x, double t) {
        const auto got = answer_cross_entropy{}(on_device<D>(matrix<double>({1, 1}, {x})),
                                                on_device<D>(matrix<double>({1, 1}, {t})));
        return std::pair(static_cast<double>(got.value), got.gradient.on_host()[0]);
    };
    CHECK(of(1e4, 1) == std::pair(0.0, 0.0));
    CHECK(of(1e4, 0) == std::pair(1e4, 1.0));
    CHECK(of(-1e4, 1) == std::pair(1e4, -1.0));
    CHECK(of(-1e4, -1) == std::pair(0.0, 0.0));
}

template <class D>
void undefined_predictions() {
    for (const double bad : {not_a_number, infinity}) {
        CAPTURE(bad);
        auto x = drawn<float>({40, 5}, 1);
        x(31, 2) = static_cast<float>(bad);
        const auto d_x = on_device<D>(x), t = on_device<D>(tensor<float>::filled({40, 5}, 0.25f));
        const auto broken = [](const auto& result) { return !std::isfinite(static_cast<double>(result.value)); };
        CHECK(broken(cross_entropy{}(d_x.share(), labels_of<D>(drawn_labels(40, 5)))));
        CHECK(broken(cross_entropy{0, {1, 2, 1, 1, 1}}(d_x.share(), labels_of<D>(drawn_labels(40, 5)))));
        CHECK(broken(mean_squared{}(d_x.share(), t)));
        CHECK(broken(mean_squared{{{1, 2, 3, 4, 5}, {}}}(d_x.share(), t)));
        CHECK(broken(binary_cross_entropy{}(d_x.share(), t)));
        CHECK(broken(answer_cross_entropy{}(d_x.share(), t)));
        CHECK(broken(huber{}(d_x.share(), t)));
    }
}

/// A loss writes over the prediction if and only if it has no other owner.
template <class D, class T>
void predictions_that_others_hold() {
    const auto labels = labels_of<D>(drawn_labels(4, 3));
    const auto kept = on_device<D>(drawn<T>({4, 3}, 1)), target = on_device<D>(drawn<T>({4, 3}, 2));
    const tensor<T> before = kept.on_host();
    const auto check = [&](const auto& loss, const auto& wanted) {
        const auto a = loss(kept.share(), wanted);
        CHECK(same_bits(kept.on_host(), before));
        CHECK(a.gradient.data() != kept.data());
        auto given = kept.clone();
        const T* const block = given.data();
        const auto b = loss(std::move(given), wanted);
        CHECK(b.gradient.data() == block);
        CHECK(same_bits(a.gradient, b.gradient));
        CHECK(static_cast<double>(a.value) == static_cast<double>(b.value));
    };
    check(cross_entropy{}, labels);
    check(cross_entropy{0.2, {1, 2, 3}}, labels);
    check(mean_squared{}, target);
    check(mean_squared{{{1, 2, 3}, {1, 2, 3, 4}}}, target);
    check(huber{}, target);
    CHECK(same_bits(target.on_host(), drawn<T>({4, 3}, 2)));
}

/// What the host knows without waiting is an error with a name; of labels, targets and sums that it does not know, the
/// value is NaN.
template <class D>
void what_does_not_fit() {
    const auto x = on_device<D>(drawn<float>({4, 3}, 1));
    const auto labels = labels_of<D>(drawn_labels(4, 3));
    CHECK_THROWS_WITH(cross_entropy{}(x.share(), labels_of<D>(drawn_labels(5, 3))),
                      Contains("5 labels") && Contains("(4, 3)"));
    CHECK_THROWS_WITH(cross_entropy{}(x.reshaped({12}), labels), Contains("(12)"));
    CHECK_THROWS_WITH(cross_entropy{}(tensor<float, D>({0, 3}), tensor<std::int32_t, D>({0})), Contains("(0, 3)"));
    CHECK_THROWS_WITH((cross_entropy{0, {1, 2}}(x.share(), labels)), Contains("2 class weights for 3 classes"));
    CHECK_THROWS_WITH((cross_entropy{0, {0, 0, 0}}(x.share(), labels)), Contains("sum to 0"));
    CHECK_THROWS_WITH((cross_entropy{1.5, {}}(x.share(), labels)), Contains("smoothing 1.5 is not in [0, 1]"));
    for (const bool weighted : {false, true})
        for (const std::int32_t bad : {-1, 3, 1000}) {
            CAPTURE(weighted, bad);
            const cross_entropy loss{0, weighted ? std::vector<double>{1, 2, 3} : std::vector<double>{}};
            const auto got = loss(x.share(), labels_of<D>({0, 1, bad, 2}));
            CHECK(std::isnan(static_cast<double>(got.value)));
            const tensor<float> gradient = got.gradient.on_host();
            for (index_t i = 0; i < gradient.size(); ++i) {
                CHECK(std::isfinite(gradient[i]));
                if (i / 3 == 2) CHECK(gradient[i] == 0);
            }
        }
    const auto nothing = cross_entropy{0, {0, 1, 1}}(x.share(), labels_of<D>({0, 0, 0, 0}));  // weights that sum to 0
    CHECK(std::isnan(static_cast<double>(nothing.value)));
    CHECK(std::isnan(nothing.gradient.on_host()[0]));

    cross_entropy none_counts;
    none_counts.ignore_index = 1;
    CHECK(std::isnan(static_cast<double>(none_counts(x.share(), labels_of<D>({1, 1, 1, 1})).value)));
    CHECK(std::isnan(static_cast<double>(none_counts(x.share(), labels_of<D>({1, 0, 3, 1})).value)));

    const auto volumes = on_device<D>(drawn<float>({2, 2, 3}, 1));
    const auto outside = dice{}(volumes.share(), labels_of<D>({0, 1, 3, 2}));
    CHECK(std::isnan(static_cast<double>(outside.value)));
    CHECK(outside.gradient.on_host()[6] == 0);
    CHECK_THROWS_WITH(dice{}(volumes.share(), labels_of<D>({0, 1, 2})), Contains("dice: 3 labels"));

    const auto t = on_device<D>(tensor<float>::filled({3, 4}, 0.5f));
    CHECK_THROWS_WITH(mean_squared{}(x.share(), t), Contains("(4, 3)") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(huber{}(x.share(), t), Contains("huber") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(binary_cross_entropy{}(x.share(), t), Contains("(4, 3)") && Contains("(3, 4)"));
    CHECK_THROWS_WITH(mean_squared{}(tensor<float, D>({0, 3}), tensor<float, D>({0, 3})), Contains("no elements"));
    CHECK_THROWS_WITH(huber{.delta = 0}(x.share(), x), Contains("delta 0"));
    CHECK_THROWS_WITH((mean_squared{{{1, 2}, {}}}(x.share(), x)), Contains("2 output weights for 3 outputs"));
    CHECK_THROWS_WITH((mean_squared{{{}, {1, 2}}}(x.share(), x)), Contains("2 sample weights for 4 samples"));
    for (const float bad : {1.5f, -0.5f, std::nanf("")}) {
        auto outside = tensor<float>::filled({4, 3}, 0.5f);
        outside(2, 1) = bad;
        CHECK(std::isnan(static_cast<double>(binary_cross_entropy{}(x.share(), on_device<D>(outside)).value)));
    }
}

template <Device D>
void dice_is_the_plain_loop() {
    for (const index_t positions : {6, 300})
        for (const index_t classes : {2, 5})
            for (const dice& loss : {dice{}, dice{.smooth = 0.1, .dice_weight = 0.5, .cross_entropy_weight = 2},
                                     dice{.dice_weight = 0, .cross_entropy_weight = 1}, dice{.first_class = 0}}) {
                CAPTURE(positions, classes, loss.cross_entropy_weight, loss.first_class);
                const auto x = drawn<double>({2, positions, 1, classes}, 5, 2);
                const auto y = drawn_labels(2 * positions, classes);
                const auto value = [&](const std::vector<double>& at) {
                    return oracle::dice(at, {y.begin(), y.end()}, 2, loss.smooth, loss.dice_weight,
                                        loss.cross_entropy_weight, static_cast<std::size_t>(loss.first_class));
                };
                const auto got = loss(on_device<D>(x), labels_of<D>(y));
                CHECK(static_cast<double>(got.value) == Approx(value(doubles(x))).epsilon(1e-13));
                if (positions == 6) check_gradient(x, got.gradient.on_host(), value);
                const auto expected = loss(x.clone(), labels_of<cpu>(y));
                check_near(got.gradient, doubles(expected.gradient), 1e-13);
            }
    const auto many = drawn<float>({2, 5000, 3}, 6);  // several chunks
    const auto y = drawn_labels(10000, 3);
    const auto got = dice{}(on_device<D>(many), labels_of<D>(y));
    const auto expected = dice{}(many.clone(), labels_of<cpu>(y));
    CHECK(static_cast<double>(got.value) == Approx(static_cast<double>(expected.value)).epsilon(1e-6));
    check_near(got.gradient, doubles(expected.gradient), 1e-9);
}

/// Rows whose label is ignore_index are as if they were not there, and have no gradient.
template <Device D>
void ignored_rows() {
    const auto x = drawn<double>({7, 4}, 3, 2);
    const std::vector<std::int32_t> y{1, 3, 0, 3, 2, 0, 1};
    for (const bool in_range : {false, true})
        for (const bool weighted : {false, true})
            for (const double smoothing : {0.0, 0.2}) {
                CAPTURE(in_range, weighted, smoothing);
                const std::int32_t ignored = in_range ? 3 : -1;
                std::vector<std::int32_t> given = y;
                std::vector<double> kept;
                std::vector<int> kept_labels;
                for (std::size_t r = 0; r < y.size(); ++r) {
                    if (y[r] == 3) {
                        given[r] = ignored;
                        continue;
                    }
                    kept_labels.push_back(y[r]);
                    for (index_t k = 0; k < 4; ++k) kept.push_back(x(static_cast<index_t>(r), k));
                }
                cross_entropy loss{smoothing, weighted ? std::vector<double>{1, 2, 0.5, 4} : std::vector<double>{}};
                loss.ignore_index = ignored;
                const auto value = [&](const std::vector<double>& at) {
                    std::vector<double> rows;
                    for (std::size_t r = 0; r < y.size(); ++r)
                        if (y[r] != 3)
                            for (std::size_t k = 0; k < 4; ++k) rows.push_back(at[4 * r + k]);
                    return oracle::cross_entropy(rows, kept_labels, smoothing, loss.class_weights);
                };
                const auto got = loss(on_device<D>(x), labels_of<D>(given));
                CHECK(static_cast<double>(got.value) == Approx(value(doubles(x))).epsilon(1e-13));
                check_gradient(x, got.gradient.on_host(), value);
                CHECK(static_cast<double>(loss.value(on_device<D>(x), labels_of<D>(given))) ==
                      static_cast<double>(got.value));
            }
}

/// Weights are uploaded once, and again when they have changed.
template <class D>
void changed_weights() {
    const auto x = drawn<double>({3, 2}, 1);
    const auto d_x = on_device<D>(x);
    const std::vector<int> y{0, 1, 1};
    const auto labels = labels_of<D>({0, 1, 1});
    cross_entropy loss{0, {1, 2}};
    const auto check = [&](const cross_entropy& l) {
        const double expected = oracle::cross_entropy(doubles(x), y, 0, l.class_weights);
        CHECK(static_cast<double>(l(d_x.share(), labels).value) == Approx(expected).epsilon(1e-13));
    };
    check(loss);
    loss.class_weights = {3, 1};
    check(loss);
    cross_entropy other = loss;
    other.class_weights[0] = 0.5;
    check(other);
    check(loss);
    other = loss;
    check(other);
    // In float next to double, from the same loss.
    const tensor<float> x32 = of_numbers<float>(doubles(x)).reshaped({3, 2});
    CHECK(static_cast<double>(loss(on_device<D>(x32), labels).value) ==
          Approx(oracle::cross_entropy(doubles(x32), y, 0, loss.class_weights)).epsilon(1e-6));
    check(loss);
}

/// A step with weights of classes, outputs and samples waits for nothing: it is recorded, and computes what it did.
template <GraphCapture D>
void steps_are_recorded() {
    const cross_entropy classes{0.1, {1, 2, 0.5}};
    const mean_squared elements{{{1, 2, 0.5}, {1, 0, 3, 2}}};
    const huber one_kind{.delta = 0.5, .weights = {{}, {1, 2, 3, 4}}};
    const binary_cross_entropy plain;
    auto x = on_device<D>(drawn<float>({4, 3}, 1));
    const auto t = on_device<D>(tensor<float>::filled({4, 3}, 0.25f));
    auto labels = labels_of<D>({0, 1, 2, 1});
    const auto check = [&](const auto& loss, const auto& target) {
        graph_memory<D> memory;
        captured_graph<D, scalar_on<D>> step(memory);
        auto gradient = tensor<float, D>::zeros({4, 3});
        for (std::uint32_t i = 0; i < 5; ++i) {
            const auto now = drawn<float>({4, 3}, 20 + i);
            D::copy_to_device(x.data(), now.data(), now.bytes());
            const auto expected = loss(x.share(), target);
            const scalar_on<D> value = step([&] {
                auto result = loss(x.share(), target);
                D::copy_within(gradient.data(), result.gradient.data(), gradient.bytes());
                return result.value;
            });
            CHECK(static_cast<double>(value) == static_cast<double>(expected.value));
            CHECK(same_bits(gradient, expected.gradient));
            CHECK(step.recorded() == (i >= 2));
        }
        CHECK(step.refusal().empty());
    };
    check(classes, labels);
    check(cross_entropy{}, labels);
    check(elements, t);
    check(one_kind, t);
    check(plain, t);
    // Other labels in the same memory: their weights are looked up anew.
    graph_memory<D> memory;
    captured_graph<D, scalar_on<D>> step(memory);
    for (std::int32_t i = 0; i < 5; ++i) {
        const auto now = labels_of<D>({i % 3, 2, 0, (i + 1) % 3});
        D::copy_within(labels.data(), now.data(), labels.bytes());
        const scalar_on<D> value = step([&] { return classes(x.share(), labels).value; });
        CHECK(static_cast<double>(value) == static_cast<double>(classes(x.share(), now).value));
    }
    CHECK(step.recorded());
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{
        {"known values, float", known_values<D, float>},
        {"known values, double", known_values<D, double>},
        {"cross-entropy is the plain loop", cross_entropy_is_the_plain_loop<D>},
        {"cross-entropy of images", cross_entropy_of_images<D, float>},
        {"large logits, float", large_logits<D, float>},
        {"large logits, double", large_logits<D, double>},
        {"losses of elements are plain loops", element_losses_are_the_plain_loop<D>},
        {"binary cross-entropy is the plain loop", binary_cross_entropy_is_the_plain_loop<D>},
        {"answers are the plain loop", answers_are_the_plain_loop<D>},
        {"undefined predictions", undefined_predictions<D>},
        {"predictions that others hold", predictions_that_others_hold<D, float>},
        {"what does not fit", what_does_not_fit<D>},
        {"Dice is the plain loop", dice_is_the_plain_loop<D>},
        {"ignored rows", ignored_rows<D>},
        {"changed weights", changed_weights<D>},
        {"steps are recorded", steps_are_recorded<D>}};
    return laws;
}

}  // namespace cairn::loss_laws
