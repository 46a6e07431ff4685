#pragma once
// Figures of a test, from the counts or the scores of all its samples.

#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

namespace cairn {

/// Area under the ROC curve: the share of pairs of a positive (truth 1) and a negative sample (0) in which the positive
/// one has the larger score, a tie counting half (Mann & Whitney 1947). Other samples do not count. Nothing where one
/// of the two is absent.
inline std::optional<double> area_under_curve(std::span<const double> truth, std::span<const double> scores) {
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < truth.size(); ++i)
        if (truth[i] == 0 || truth[i] == 1) order.push_back(i);
    std::ranges::sort(order, {}, [&](std::size_t i) { return scores[i]; });
    double positives = 0, negatives = 0, won = 0;
    for (std::size_t i = 0; i < order.size();) {
        double ties[2] = {0, 0};  // of one score: negative and positive samples
        for (const double score = scores[order[i]]; i < order.size() && scores[order[i]] == score; ++i)
            ++ties[truth[order[i]] == 1];
        won += ties[1] * (negatives + ties[0] / 2);
        negatives += ties[0];
        positives += ties[1];
    }
    if (positives == 0 || negatives == 0) return {};
    return won / (positives * negatives);
}

/// Of counts [true class][predicted class]: means over the classes that samples have.
struct class_means {
    double recall = 0;  // balanced accuracy
    double f1 = 0;      // 2 hits / (true + predicted); of the classes that samples have or are given
    double iou = 0;     // hits / (true or predicted), likewise

    class_means(std::span<const double> confusion, std::size_t classes) {
        double present = 0, judged = 0;
        for (std::size_t c = 0; c < classes; ++c) {
            double of_class = 0, given = 0;
            for (std::size_t k = 0; k < classes; ++k) {
                of_class += confusion[c * classes + k];
                given += confusion[k * classes + c];
            }
            const double hits = confusion[c * classes + c];
            if (of_class > 0) {
                ++present;
                recall += hits / of_class;
            }
            if (of_class + given == 0) continue;
            ++judged;
            f1 += 2 * hits / (of_class + given);
            iou += hits / (of_class + given - hits);
        }
        if (present > 0) recall /= present;
        if (judged > 0) f1 /= judged, iou /= judged;
    }
};

}  // namespace cairn
