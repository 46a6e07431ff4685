// Figures against their definitions by plain loops, ties and absent classes among them.

#include "catch.hpp"

#include <cairn/core/figures.hpp>
#include <cairn/core/random.hpp>
#include <cairn/data/micro_batches.hpp>
#include <cairn/objectives/answers.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/objectives/regression.hpp>

#include <map>

namespace cairn {
namespace {

// The share of pairs that are in order, pair by pair.
std::optional<double> area_by_pairs(const std::vector<double>& truth, const std::vector<double>& scores) {
    double won = 0, pairs = 0;
    for (std::size_t i = 0; i < truth.size(); ++i)
        for (std::size_t k = 0; k < truth.size(); ++k)
            if (truth[i] == 1 && truth[k] == 0) {
                ++pairs;
                won += scores[i] > scores[k] ? 1 : scores[i] == scores[k] ? 0.5 : 0;
            }
    if (pairs == 0) return {};
    return won / pairs;
}

double figure(const metric_list& all, const std::string& name) {
    for (const auto& [figure, value] : all)
        if (figure == name) return value;
    FAIL("no figure " << name);
    return 0;
}

batch batch_of(index_t n) {
    batch b;
    b.count = n;
    return b;
}

}  // namespace

TEST_CASE("figures: the area under the curve counts pairs", "[figures]") {
    for (std::uint32_t round = 0; round < 500; ++round) {
        const random_stream random{3, 4, round};
        const index_t n = static_cast<index_t>(random.below(30, 0)),
                      levels = 1 + static_cast<index_t>(random.below(40, 1));
        std::vector<double> truth, scores;
        for (std::uint64_t i = 0; i < static_cast<std::uint64_t>(n); ++i) {
            truth.push_back(static_cast<double>(random.below(3, 2 + 2 * i)) - 1);  // −1: not known
            scores.push_back(static_cast<double>(random.below(static_cast<std::uint64_t>(levels), 3 + 2 * i)) / 7);
        }
        const auto expected = area_by_pairs(truth, scores), got = area_under_curve(truth, scores);
        REQUIRE(got.has_value() == expected.has_value());
        if (got) REQUIRE(*got == Approx(*expected).margin(1e-12));
    }
}

TEST_CASE("figures: means over classes", "[figures]") {
    for (std::uint32_t round = 0; round < 500; ++round) {
        const random_stream random{5, 6, round};
        const std::size_t classes = 2 + random.below(5, 0), n = random.below(40, 1);
        std::vector<std::size_t> truth, guess;
        std::vector<double> confusion(classes * classes);
        for (std::uint64_t i = 0; i < n; ++i) {
            truth.push_back(random.below(classes - round % 2, 2 + 2 * i));  // often without the last class
            guess.push_back(random.below(classes, 3 + 2 * i));
            ++confusion[truth.back() * classes + guess.back()];
        }
        double recall = 0, present = 0, f1 = 0, iou = 0, judged = 0;
        for (std::size_t c = 0; c < classes; ++c) {
            double hits = 0, missed = 0, wrong = 0;
            for (std::size_t i = 0; i < n; ++i) {
                hits += truth[i] == c && guess[i] == c;
                missed += truth[i] == c && guess[i] != c;
                wrong += truth[i] != c && guess[i] == c;
            }
            if (hits + missed > 0) recall += hits / (hits + missed), ++present;
            if (hits + missed + wrong > 0) {
                const double precision = hits + wrong > 0 ? hits / (hits + wrong) : 0,
                             r = hits + missed > 0 ? hits / (hits + missed) : 0;
                f1 += precision + r > 0 ? 2 * precision * r / (precision + r) : 0;
                iou += hits / (hits + missed + wrong);
                ++judged;
            }
        }
        const class_means means(confusion, classes);
        REQUIRE(means.recall == Approx(present > 0 ? recall / present : 0));
        REQUIRE(means.f1 == Approx(judged > 0 ? f1 / judged : 0).margin(1e-12));
        REQUIRE(means.iou == Approx(judged > 0 ? iou / judged : 0).margin(1e-12));
    }
}

TEST_CASE("figures: of two classes, of answers, of values", "[figures][objectives]") {
    target_info two;
    two.names = {"no", "yes"};
    const any_objective<> goal = classification{{two}};
    evaluation e = goal.start();
    batch b = batch_of(5);
    b.labels = tensor<std::int32_t>({5});
    tensor<float> y({5, 2});
    const float outputs[5][2] = {{0, 3}, {1, 0}, {0, 1}, {2, 2}, {1, 4}};
    for (index_t i = 0; i < 5; ++i) {
        b.labels[i] = i % 2;
        for (index_t k = 0; k < 2; ++k) y(i, k) = outputs[i][k];
    }
    goal.add(e, y, device_batch<>(samples_of(b, range{0, 5})));
    const metric_list classes = goal.metrics(e);  // scores 3, −1, 1, 0, 3 of 0, 1, 0, 1, 0
    CHECK(classes.front() == std::pair<std::string, double>("accuracy", 0));
    CHECK(figure(classes, "auc") == 0);
    CHECK(figure(classes, "macro_f1") == 0);

    target_info info{target_kind::answers, {"a", "b"}, {0, 0}, {1, 1}};
    const any_objective<> questions = answers{info};
    evaluation of_answers = questions.start();
    batch c = batch_of(3);
    c.targets = tensor<float>({3, 2});
    tensor<float> logits({3, 2});
    const float truth[3][2] = {{0, 1}, {1, -1}, {1, 1}};
    for (index_t i = 0; i < 3; ++i)
        for (index_t k = 0; k < 2; ++k) c.targets(i, k) = truth[i][k], logits(i, k) = static_cast<float>(i % 2);
    questions.add(of_answers, logits, device_batch<>(samples_of(c, range{0, 3})));
    const metric_list found = questions.metrics(of_answers);
    REQUIRE(found.size() == 2);  // the second question has one answer alone
    CHECK(found[0] == std::pair<std::string, double>("auc", 0.75));
    CHECK(found[1] == std::pair<std::string, double>("auc_a", 0.75));

    const any_objective<> values = regression{{target_kind::values, {"v"}, {10}, {2}}};
    evaluation of_values = values.start();
    batch d = batch_of(2);
    d.targets = tensor<float>({2, 1});
    tensor<float> guess({2, 1});
    d.targets[0] = 0, d.targets[1] = 1, guess[0] = 1, guess[1] = 3;
    values.add(of_values, guess, device_batch<>(samples_of(d, range{0, 2})));
    CHECK(figure(values.metrics(of_values), "rmse_v") == Approx(std::sqrt((4.0 + 16) / 2)));
    CHECK(figure(values.metrics(of_values), "mae_v") == Approx(3));
}

}  // namespace cairn
