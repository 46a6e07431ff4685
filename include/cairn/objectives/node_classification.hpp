#pragma once
// A class for each node of a graph; −1 where a node has none, or none of this part of the data. Loss: cross-entropy,
// and figure: accuracy, over the nodes that have a label.

#include <cairn/objectives/class_rows.hpp>

#include <algorithm>

namespace cairn {

struct node_classification : class_rows<> {
    static constexpr std::int32_t no_label = -1;

    explicit node_classification(cross_entropy loss = {}) : class_rows{{}, std::move(loss)} {
        row_loss.ignore_index = no_label;
    }

    evaluation start() const { return {.sums = {{"correct", {0}}, {"labelled", {0}}}}; }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const auto labels = b.host.labels.span();
        e.sums["correct"][0] += static_cast<double>(correct(y, b.there));
        e.sums["labelled"][0] += static_cast<double>(std::ssize(labels) - std::ranges::count(labels, no_label));
    }
    metric_list metrics(const evaluation& e) const {
        return {{"accuracy", e.sums.at("correct")[0] / std::max(e.sums.at("labelled")[0], 1.0)}};
    }
};

}  // namespace cairn
