// Objectives of given outputs: figures of texts, whose every position is a choice, by plain loops.

#include "catch.hpp"

#include <cairn/data/micro_batches.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/next_token.hpp>
#include <cairn/objectives/node_classification.hpp>
#include <cairn/objectives/segmentation.hpp>

#include <limits>

namespace cairn {

TEST_CASE("objective: a text is judged at each of its positions", "[objectives]") {
    constexpr index_t samples_count = 3, length = 4, classes = 5;
    target_info info;
    info.labels_each = length;
    info.names.assign(classes, "token");
    const any_objective<> goal = next_token<>{{info}};
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
    evaluation s = goal.start();
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    CHECK(s.count == 2 * samples_count);
    CHECK(s.sums.count("confusion") == 0);
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

TEST_CASE("objective: drawn labels give the Hessian of a sample's loss, however many labels it has", "[objectives]") {
    constexpr index_t count = 4, classes = 3, draws = 400;
    for (const index_t length : {1, 8, 64})
        for (const label_place place : {label_place::tokens, label_place::voxels, label_place::nodes}) {
            target_info info;
            info.labels_each = length;
            info.labels = place;
            info.names.assign(classes, "class");
            const any_objective<> goal = place == label_place::tokens   ? any_objective<>(next_token<>{{info}})
                                         : place == label_place::voxels ? any_objective<>(segmentation<dice>{{info}})
                                                                        : any_objective<>(node_classification{});
            tensor<float> y({count, length, classes});
            for (index_t i = 0; i < y.size(); ++i) y[i] = static_cast<float>(i * 5 % 7) / 3;
            double hessian = 0;  // traces; of a row's −log p: 1 − Σ p²
            for (index_t row = 0; row < count * length; ++row) {
                double sum = 0, squares = 0;
                for (index_t k = 0; k < classes; ++k) {
                    const double e = std::exp(static_cast<double>(y[row * classes + k]));
                    sum += e;
                    squares += e * e;
                }
                hessian += (1 - squares / (sum * sum)) / static_cast<double>(length * count);
            }
            double fisher = 0;  // E ‖g‖², g of each sample's loss
            for (std::uint32_t draw = 0; draw < draws; ++draw) {
                const tensor<float> g = goal.sampled_gradient(y.clone(), random_stream{5, draw, 0});
                for (const float v : g.span())
                    fisher += static_cast<double>(v) * static_cast<double>(v) * count / draws;
            }
            INFO(length << " labels a sample, place " << static_cast<int>(place));
            CHECK(fisher == Approx(hessian).epsilon(0.05));
        }
}

TEST_CASE("objective: volumes are judged by the overlap of their classes, each by itself", "[objectives]") {
    constexpr index_t count = 3, voxels = 6, classes = 3;
    target_info info;
    info.labels_each = voxels;
    info.labels = label_place::voxels;
    info.names = {"background", "a", "b"};
    const any_objective<> goal = segmentation<dice>{{info, {.cross_entropy_weight = 1}}, {2, 3}};
    // Class b is neither true nor predicted in the second volume, class a only predicted in the third.
    const std::vector<int> truth{0, 0, 1, 1, 1, 2, /**/ 0, 0, 0, 1, 1, 1, /**/ 0, 0, 0, 0, 2, 2},
        guess{0, 1, 1, 1, 2, 2, /**/ 0, 0, 1, 1, 1, 1, /**/ 1, 0, 0, 2, 2, 2};
    batch b;
    b.count = count;
    b.labels = tensor<std::int32_t>({count, voxels});
    tensor<float> y({count, 1, 2, 3, classes});
    index_t hits = 0;
    for (index_t v = 0; v < count * voxels; ++v) {
        const auto at = static_cast<std::size_t>(v);
        b.labels[v] = truth[at];
        for (index_t c = 0; c < classes; ++c) y[v * classes + c] = guess[at] == c ? 2.0f : -1.0f;
        hits += truth[at] == guess[at];
    }
    evaluation s = goal.start();
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    const auto metrics = goal.metrics(s);
    REQUIRE(metrics.size() == 8);
    const double a = (2.0 * 2 / (3 + 3) + 2.0 * 3 / (3 + 4) + 0) / 3,
                 in_b = (2.0 * 1 / (1 + 2) + 2.0 * 2 / (2 + 3)) / 2;
    CHECK(metrics[0] == std::pair<std::string, double>{"dice", (a + in_b) / 2});
    CHECK(metrics[1].first == "voxel_accuracy");
    CHECK(metrics[1].second == Approx(static_cast<double>(hits) / (count * voxels)));
    CHECK(metrics[2].first == "dice_a");
    CHECK(metrics[2].second == Approx(a));
    CHECK(metrics[3].second == Approx(in_b));
    // Surfaces by hand, on grids of 2 x 3: class a is true and predicted in the first two volumes, b in two as well.
    CHECK(metrics[4].first == "surface_distance_a");
    CHECK(metrics[4].second == Approx((0.9 + 0.85) / 2));
    CHECK(metrics[5].second == Approx((0.95 + 0.9) / 2));
    CHECK(metrics[6].first == "iou_a");
    CHECK(metrics[6].second == Approx((2.0 + 3) / (4 + 4 + 1)));
    CHECK(metrics[7].second == Approx((1.0 + 2) / (2 + 3)));

    // Micro-batches of a volume each add up to the batch: Dice is of each volume by itself.
    const samples<cpu> all = samples_on<cpu>(b);
    const auto whole = goal.loss(y.clone(), all);
    double sum = 0;
    for (index_t n = 0; n < count; ++n) {
        const samples<cpu> one{{}, all.labels.slice(n * voxels, {1, voxels}), {}};
        const auto part = goal.loss(y.slice(n * voxels * classes, {1, 1, 2, 3, classes}).clone(), one);
        sum += static_cast<double>(part.value) / count;
        for (index_t i = 0; i < voxels * classes; ++i)
            CHECK(part.gradient[i] / count == Approx(whole.gradient[n * voxels * classes + i]).margin(1e-8));
    }
    CHECK(static_cast<double>(whole.value) == Approx(sum));
}

TEST_CASE("objective: of a graph the nodes that have a label count", "[objectives]") {
    constexpr index_t nodes = 6, classes = 3;
    target_info info;
    info.labels_each = nodes;
    info.labels = label_place::nodes;
    info.names.assign(classes, "class");
    const any_objective<> goal = node_classification{};
    const std::vector<int> labels{-1, 2, -1, 0, 1, -1};
    batch b;
    b.count = 1;
    b.labels = tensor<std::int32_t>({1, nodes});
    tensor<float> y({1, nodes, classes});
    double nats = 0;
    index_t hits = 0;
    for (index_t r = 0; r < nodes; ++r) {
        const int label = b.labels[r] = labels[static_cast<std::size_t>(r)];
        double sum = 0;
        index_t best = 0;
        for (index_t k = 0; k < classes; ++k) {
            y[r * classes + k] = static_cast<float>((7 * r + 5 * k) % 4);
            sum += std::exp(static_cast<double>(y[r * classes + k]));
            if (y[r * classes + k] > y[r * classes + best]) best = k;
        }
        if (label < 0) continue;
        nats += (std::log(sum) - static_cast<double>(y[r * classes + label])) / 3;
        hits += best == label;
    }
    evaluation s = goal.start();
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    CHECK(s.sums.at("labelled")[0] == 3);
    CHECK(s.loss() == Approx(nats));
    CHECK(goal.metrics(s) == std::vector<std::pair<std::string, double>>{{"accuracy", static_cast<double>(hits) / 3}});
    const auto [loss, gradient] = goal.loss(y.clone(), samples_on<cpu>(b));
    CHECK(static_cast<double>(loss) == Approx(nats));
    REQUIRE(gradient.shape() == y.shape());
    for (index_t r = 0; r < nodes; ++r) {
        bool none = true;
        for (index_t k = 0; k < classes; ++k) none &= gradient[r * classes + k] == 0;
        CHECK(none == (labels[static_cast<std::size_t>(r)] < 0));
    }
    for (std::int32_t& label : b.labels.span()) label = -1;
    CHECK_THROWS_WITH(goal.loss(y.clone(), samples_on<cpu>(b)), Catch::Contains("none has a label that counts"));
}

TEST_CASE("objective: of equal scores the first ones are the best five", "[objectives]") {
    constexpr index_t classes = 12;
    target_info info;
    info.names.assign(classes, "class");
    const any_objective<> goal = classification{{info}};
    batch b;
    b.count = 3;
    b.labels = tensor<std::int32_t>({3});
    b.labels[0] = 6, b.labels[1] = 5, b.labels[2] = 0;
    tensor<float> y({3, classes});
    y[classes - 1] = -1;                                       // row 0: 11 equal ones, of which 6 is the seventh
    y[classes + 5] = 1;                                        // row 1: the best one
    y[2 * classes] = std::numeric_limits<float>::quiet_NaN();  // row 2: no score at all
    evaluation s = goal.start();
    goal.add(s, y, device_batch<>(samples_of(b, range{0, b.count})));
    CHECK(goal.metrics(s)[1].first == "top5_accuracy");
    CHECK(goal.metrics(s)[1].second == Approx(1.0 / 3));
}

}  // namespace cairn
