#pragma once
// A class for each voxel of a volume, or pixel of an image. Loss: cross_entropy, or dice, alone or with cross-entropy.
// Figures: the mean of
//   Dice of each class but the background, 2 |A ∩ B| / (|A| + |B|) of a volume, the mean over those where the class is
//   true or predicted
// then the share of voxels that are right; and of each class its Dice, |A ∩ B| / |A ∪ B| over all volumes (IoU), and
// the distance of the surfaces (core/surface_distance.hpp), the mean over volumes where it is true and predicted.

#include <cairn/core/surface_distance.hpp>
#include <cairn/nn/loss/dice.hpp>
#include <cairn/objectives/class_rows.hpp>

namespace cairn {

template <class Loss = cross_entropy>
struct segmentation : class_rows<Loss> {
    shape grid = {};  // of the voxels

    evaluation start() const {
        const std::vector<double> of_classes(static_cast<std::size_t>(this->info.count()));
        return {.sums = {{"correct", {0}},
                         {"dice", of_classes},
                         {"volumes", of_classes},
                         {"both", of_classes},
                         {"either", of_classes},
                         {"surface_distance", of_classes},
                         {"surfaces", of_classes}}};
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
                e.sums["both"][c] += both[c];
                e.sums["either"][c] += either[c] - both[c];
                if (c > 0) add_surfaces(e, c, b.host.labels.data() + i * each, guesses.data() + i * each);
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
        const auto each = [&](const char* figure, const char* sum, const char* of) {
            const std::vector<double>&sums = e.sums.at(sum), &counts = e.sums.at(of);
            for (std::size_t c = 1; c < sums.size(); ++c)
                if (counts[c] > 0) all.emplace_back(figure + this->info.names[c], sums[c] / counts[c]);
        };
        each("surface_distance_", "surface_distance", "surfaces");
        each("iou_", "both", "either");
        return all;
    }

private:
    void add_surfaces(evaluation& e, std::size_t c, const std::int32_t* labels, const std::int32_t* guesses) const {
        if (grid.size() != this->info.labels_each) return;
        const auto of_class = [&](const std::int32_t* voxels) {
            std::vector<std::uint8_t> chosen;
            for (index_t v = 0; v < this->info.labels_each; ++v)
                chosen.push_back(voxels[v] == static_cast<std::int32_t>(c));
            return chosen;
        };
        if (const auto distance = surface_distance(of_class(labels), of_class(guesses), grid, this->info.spacing)) {
            e.sums["surface_distance"][c] += *distance;
            ++e.sums["surfaces"][c];
        }
    }
};

}  // namespace cairn
