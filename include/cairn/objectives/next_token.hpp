#pragma once
// A text, where each position predicts the next token. Loss: cross-entropy of each. Figures: bits a token (log2 of the
// perplexity) and accuracy.

#include <cairn/objectives/class_rows.hpp>

#include <numbers>

namespace cairn {

template <class Loss = cross_entropy>
struct next_token : class_rows<Loss> {
    evaluation start() const { return {.sums = {{"correct", {0}}}}; }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        e.sums["correct"][0] += static_cast<double>(this->correct(y, b.there));
    }
    metric_list metrics(const evaluation& e) const {
        return {{"bits_per_token", e.loss() / std::numbers::ln2},
                {"token_accuracy", e.mean("correct") / static_cast<double>(this->info.labels_each)}};
    }
};

}  // namespace cairn
