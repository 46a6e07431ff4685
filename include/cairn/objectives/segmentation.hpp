#pragma once
// A class for each voxel. Loss: cross_entropy, or dice, alone or with cross-entropy. Figures: the mean of
//   Dice of each class but the background, 2 |A ∩ B| / (|A| + |B|) of a volume, the mean over those where the class is
//   true or predicted
// then the share of voxels that are right, and each class's Dice.

#include <cairn/nn/loss/dice.hpp>
#include <cairn/objectives/class_rows.hpp>

namespace cairn {

template <class Loss = cross_entropy>
struct segmentation : class_rows<Loss> {
    evaluation start() const {
        const std::vector<double> of_classes(static_cast<std::size_t>(this->info.count()));
        return {.sums = {{"correct", {0}}, {"dice", of_classes}, {"volumes", of_classes}}};
    }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const tensor<std::int32_t> guesses = this->predicted_classes(y).on_host(memory_category::workspace);
        const index_t each = this->info.labels_each;
        const auto classes = static_cast<std::size_t>(this->info.count());
        for (index_t i = 0; i < b.host.count; ++i) {
            std::vector<double> both(classes), either(classes);  // |A ∩ B| and |A| + |B|
            for (index_t v = i * each; v < (i + 1) * each; ++v) {
                const auto label = static_cast<std::size_t>(b.host.labels[v]),
                           guess = static_cast<std::size_t>(guesses[v]);
                both[label] += label == guess;
                ++either[label];
                ++either[guess];
            }
            for (std::size_t c = 0; c < classes; ++c) {
                e.sums["correct"][0] += both[c];
                if (either[c] == 0) continue;
                e.sums["dice"][c] += 2 * both[c] / either[c];
                ++e.sums["volumes"][c];
            }
        }
    }
    metric_list metrics(const evaluation& e) const {
        metric_list all{{"dice", 0},
                        {"voxel_accuracy", e.mean("correct") / static_cast<double>(this->info.labels_each)}};
        const std::vector<double>&dice = e.sums.at("dice"), &volumes = e.sums.at("volumes");
        for (std::size_t c = 1; c < dice.size(); ++c) {
            const double mean = volumes[c] > 0 ? dice[c] / volumes[c] : 0;
            all.emplace_back("dice_" + this->info.names[c], mean);
            all[0].second += mean / static_cast<double>(dice.size() - 1);
        }
        return all;
    }
};

}  // namespace cairn
