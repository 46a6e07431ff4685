#pragma once
// Several questions a sample, each answered by yes or no, or not known (target_kind::answers). Loss:
// answer_cross_entropy. Figures: the mean over the questions of the area under the ROC curve, and that of each; a
// question without both answers among the samples has none.

#include <cairn/core/figures.hpp>
#include <cairn/nn/loss/answer_cross_entropy.hpp>
#include <cairn/objectives/objective.hpp>

namespace cairn {

struct answers {
    static constexpr averaged_outputs averages = averaged_outputs::values;

    target_info info = {};

    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        return answer_cross_entropy{}(std::move(y), s.targets);
    }
    evaluation start() const {
        const std::vector<std::vector<double>> lists(static_cast<std::size_t>(info.count()));
        return {.sums = {}, .truth = lists, .predicted = lists};
    }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const tensor<float> scores = y.on_host(memory_category::workspace);
        for (index_t i = 0; i < scores.size(); ++i) {
            const auto k = static_cast<std::size_t>(i % info.count());
            e.truth[k].push_back(static_cast<double>(b.host.targets[i]));
            e.predicted[k].push_back(static_cast<double>(scores[i]));
        }
    }
    metric_list metrics(const evaluation& e) const {
        metric_list all{{"auc", 0}};
        double questions = 0;
        for (std::size_t k = 0; k < e.truth.size(); ++k)
            if (const auto area = area_under_curve(e.truth[k], e.predicted[k])) {
                all.emplace_back("auc_" + info.names[k], *area);
                all[0].second += *area;
                ++questions;
            }
        if (questions > 0) all[0].second /= questions;
        return all;
    }
};

}  // namespace cairn
