// The cross-entropy of logits that are cut over the vocabulary against the whole one: values and gradients, also by
// differences, with label smoothing and with logits that overflow exp.

#include "catch.hpp"
#include "messages.hpp"
#include "parallel/tensor/split_layers.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>

namespace cairn::split_layers {

using ranks = threads_communicator;

constexpr index_t rows = 6, classes = 7;

tensor<std::int32_t> labels() {
    tensor<std::int32_t> t({2, 3});
    for (index_t i = 0; i < rows; ++i) t[i] = static_cast<std::int32_t>(i * 5 % classes);
    return t;
}

/// Value, its gradient over all classes, and the value that evaluation gives, on p ranks.
struct outcome {
    double value = 0, evaluated = 0;
    tensor<double> gradient;
};
outcome split(int p, const tensor<double>& logits, double smoothing) {
    outcome all;
    run_ranks(p, [&](threads_communicator& c) {
        channel<ranks> over(c);
        ranks_axis axis(over);
        const vocabulary_cross_entropy<ranks> loss{&axis, classes, smoothing};
        const tensor<double> here = part(axis, logits, cut::features);
        const double evaluated = loss.value(here, labels());
        auto [value, gradient] = loss(here.clone(), labels());
        tensor<double> shown = tensor<double>::filled({1}, value);
        require_equal_bits(axis, shown, "loss");
        tensor<double> whole = joined(axis, gradient, logits.shape(), cut::features);
        if (c.rank() == 0) all = {value, evaluated, std::move(whole)};
    });
    return all;
}

TEST_CASE("split cross-entropy: value and gradient are those of whole logits", "[tensor_parallel]") {
    for (const double scale : {1.0, 1e4})
        for (const double smoothing : {0.0, 0.1})
            for (const int p : {1, 2, 4}) {
                CAPTURE(scale, smoothing, p);
                tensor<double> logits = normal({2, 3, classes}, 3);
                for (index_t i = 0; i < logits.size(); ++i) logits[i] *= scale;
                const auto expected = cross_entropy{.label_smoothing = smoothing}(logits.clone(), labels());
                const outcome got = split(p, logits, smoothing);
                CHECK(got.value == Approx(double(expected.value)).epsilon(1e-12));
                CHECK(got.evaluated == got.value);
                CHECK(difference(got.gradient, expected.gradient) <= 1e-12);
            }
}

TEST_CASE("split cross-entropy: the gradient is that of differences", "[tensor_parallel]") {
    const tensor<double> logits = normal({2, 3, classes}, 4);
    const outcome at = split(2, logits, 0.2);
    for (const index_t i : {index_t{0}, index_t{4}, index_t{9}, index_t{20}, index_t{41}}) {
        const auto moved = [&](double h) {
            tensor<double> x = logits.clone();
            x[i] += h;
            return split(2, x, 0.2).value;
        };
        CAPTURE(i);
        CHECK((moved(1e-5) - moved(-1e-5)) / 2e-5 == Approx(at.gradient[i]).margin(1e-9));
    }
}

TEST_CASE("split cross-entropy: three numbers a row travel, not the classes", "[tensor_parallel]") {
    std::int64_t sent = 0;
    run_ranks(2, [&](threads_communicator& c) {
        using counted = counting_communicator<threads_communicator>;
        counted counting(c.split(0, c.rank()));
        channel<counted> over(counting);
        tensor_axis<counted> axis(over, {.algorithm = all_reduce_algorithm::ring});
        const vocabulary_cross_entropy<counted> loss{&axis, classes};
        loss(normal({2, 3, axis.part_of(classes, "").count}, 3), labels());
        if (c.rank() == 0) sent = counting.counts().bytes;
    });
    CHECK(sent == 2 * (2 - 1) * 3 * rows * 8 / 2);
}

TEST_CASE("split cross-entropy: what does not fit is refused", "[tensor_parallel]") {
    const auto refused = [](const shape& logits, std::int32_t label, index_t all) {
        return test::message_of([&] {
            run_ranks(2, [&](threads_communicator& c) {
                channel<ranks> over(c);
                ranks_axis axis(over);
                vocabulary_cross_entropy<ranks>{&axis, all}(normal(logits, 1),
                                                            tensor<std::int32_t>::filled({2}, label));
            });
        });
    };
    using test::contains;
    CHECK(contains(refused({2, 5}, 0, 8), "has 4 of 8 classes: expected (rows…, 4)"));
    CHECK(contains(refused({2, 4}, 8, 8), "label 8 of row 0 is not in [0, 8)"));
    CHECK(contains(refused({3, 4}, 0, 8), "2 labels (2) for logits (3, 4)"));
    CHECK(contains(refused({2, 1}, 0, 1), "classes: 1 cannot be cut over 2 ranks"));
}

}  // namespace cairn::split_layers
