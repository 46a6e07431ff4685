// What a task makes of outputs: figures of texts, whose every position is a choice, by plain loops.

#include "catch.hpp"

#include <cairn/device/cpu/softmax.hpp>
#include <cairn/train/objective.hpp>

namespace cairn {

TEST_CASE("task: a text is judged at each of its positions", "[train]") {
    constexpr index_t samples_count = 3, length = 4, classes = 5;
    target_info info;
    info.labels_each = length;
    info.names.assign(classes, "token");
    const objective goal({}, info);
    batch b;
    b.count = samples_count;
    b.labels = tensor<std::int32_t>({samples_count, length});
    tensor<float> y({samples_count, length, classes});
    const random_stream random{5, 6, 7};
    for (index_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    double nats = 0;
    index_t hits = 0;
    for (index_t row = 0; row < b.labels.size(); ++row) {
        b.labels[row] = static_cast<std::int32_t>(random.below(classes, static_cast<std::uint64_t>(1000 + row)));
        const float* const x = y.data() + row * classes;
        double sum = 0;
        index_t best = 0;
        for (index_t k = 0; k < classes; ++k) {
            sum += std::exp(static_cast<double>(x[k]));
            if (x[k] > x[best]) best = k;
        }
        if (row % 3 == 0) b.labels[row] = static_cast<std::int32_t>(best);
        nats += std::log(sum) - static_cast<double>(x[b.labels[row]]);
        hits += best == b.labels[row];
    }
    REQUIRE(hits > 0);
    evaluation s;
    goal.add(s, y, b);
    goal.add(s, y, b);
    CHECK(s.count == 2 * samples_count);
    CHECK(s.confusion.empty());
    const auto metrics = goal.metrics(s);
    REQUIRE(metrics.size() == 2);
    CHECK(metrics[0].first == "bits_per_token");
    CHECK(metrics[0].second == Approx(nats / (samples_count * length) / std::log(2)));
    CHECK(metrics[1].first == "token_accuracy");
    CHECK(metrics[1].second == Approx(static_cast<double>(hits) / (samples_count * length)));

    const samples<cpu> there = samples_on<cpu>(b);
    CHECK(static_cast<double>(goal.correct(y, there)) == static_cast<double>(hits));
    const auto [loss, gradient] = goal.loss(y.clone(), there);
    CHECK(static_cast<double>(loss) == Approx(nats / (samples_count * length)));
    CHECK(gradient.shape() == y.shape());
    const tensor<float> drawn = goal.sampled_gradient(y.clone(), random);
    CHECK(drawn.shape() == y.shape());
    for (index_t row = 0; row < b.labels.size(); ++row) {  // of softmax minus one label
        double sum = 0;
        index_t below = 0;
        for (index_t k = 0; k < classes; ++k) {
            sum += static_cast<double>(drawn[row * classes + k]);
            below += drawn[row * classes + k] < 0;
        }
        CHECK(sum == Approx(0).margin(1e-6));
        CHECK(below == 1);
    }
}

}  // namespace cairn
