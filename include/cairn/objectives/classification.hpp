#pragma once
// A class for each sample. Loss: cross-entropy. Figures: accuracy; of more than ten classes also the share of samples
// whose class is among the five with the largest outputs; means over the classes of recall and F1; of two classes the
// area under the ROC curve of the second one's output less the first one's. The report has the confusion counts.

#include <cairn/core/figures.hpp>
#include <cairn/objectives/class_rows.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

struct classification : class_rows<> {
    evaluation start() const {
        const auto classes = static_cast<std::size_t>(info.count());
        const std::vector<std::vector<double>> list(classes == 2);  // of scores
        return {
            .sums = {{"correct", {0}}, {"correct_top5", {0}}, {"confusion", std::vector<double>(classes * classes)}},
            .truth = list,
            .predicted = list};
    }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const index_t classes = y.extent(-1);
        const tensor<float> scores = y.on_host(memory_category::workspace);
        for (index_t i = 0; i < b.host.count; ++i) {
            const float* const of = scores.data() + i * classes;
            const index_t label = b.host.labels[i], guess = std::max_element(of, of + classes) - of;
            index_t before = 0;  // as max_element has it: of equals the first one
            for (index_t k = 0; k < classes; ++k) before += of[k] > of[label] || (k < label && of[k] == of[label]);
            e.sums["correct"][0] += guess == label;
            e.sums["correct_top5"][0] += before < 5 && !std::isnan(of[label]);
            ++e.sums["confusion"][static_cast<std::size_t>(label * classes + guess)];
            if (classes != 2) continue;
            e.truth[0].push_back(static_cast<double>(label));
            e.predicted[0].push_back(static_cast<double>(of[1]) - static_cast<double>(of[0]));
        }
    }
    metric_list metrics(const evaluation& e) const {
        metric_list all{{"accuracy", e.mean("correct")}};
        if (info.count() > 10) all.emplace_back("top5_accuracy", e.mean("correct_top5"));
        const class_means means(e.sums.at("confusion"), static_cast<std::size_t>(info.count()));
        all.emplace_back("balanced_accuracy", means.recall);
        all.emplace_back("macro_f1", means.f1);
        if (info.count() == 2)
            if (const auto area = area_under_curve(e.truth[0], e.predicted[0])) all.emplace_back("auc", *area);
        return all;
    }
};

}  // namespace cairn
