#pragma once
// Soft Dice loss of segmentation (Milletari et al. 2016; Sudre et al. 2017), of each sample by itself:
//   p = softmax(logits),  g = one-hot labels;   of sample n and class c, sums over its positions v:
//   I = Σ p g    P = Σ p    G = Σ g    dice = (2 I + s) / (P + G + s)
//   loss_n = w (1 − mean_c dice) + u · mean_v (− log p_label)         mean over the classes from `first_class` on
//   d loss_n / d p_vc = w / classes · ((2 I + s) / (P + G + s)² − 2 g_vc / (P + G + s)),   then through the softmax
// value = mean over samples of loss_n: a batch cut into micro-batches has the loss and the gradient of the whole.
// Two passes: logits read and p written over the gradient's block, p read and the gradient written there. Sums over
// blocks of positions in double, in order: the same bits on any number of threads.
// Tested against tests/oracle/losses.hpp and numerical gradients.

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/nn/loss/loss.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn {

/// Loss of segmentation on the host. Logits (samples, positions…, classes); labels: int32 in [0, classes), one for each
/// position.
struct dice {
    double smooth = 1;                // s > 0: what a class that a sample lacks is measured by
    double dice_weight = 1;           // w
    double cross_entropy_weight = 0;  // u
    index_t first_class = 1;          // 1: without the background

    /// Throws on counts that do not fit and on a label out of range, naming row and label.
    template <class T>
    loss_result<T> operator()(tensor<T> logits, const tensor<std::int32_t>& labels) const {
        require(logits.rank() >= 3 && logits.size() > 0, "dice: logits have shape ", logits.shape(),
                "; expected (samples, positions…, classes)");
        require(labels.size() * logits.extent(-1) == logits.size(), "dice: ", labels.size(), " labels ", labels.shape(),
                " for logits ", logits.shape());
        require(smooth > 0, "dice: smooth ", smooth, "; it must be positive");
        require(first_class >= 0 && first_class < logits.extent(-1), "dice: classes from ", first_class, " on, of ",
                logits.extent(-1));
        tensor<T> gradient = gradient_over(logits);  // (samples, positions…, classes)
        const index_t samples = logits.extent(0), classes = logits.extent(-1), positions = labels.size() / samples;
        double total = 0;
        for (index_t n = 0; n < samples; ++n) {
            const T* const x = logits.data() + n * positions * classes;
            T* const g = gradient.data() + n * positions * classes;
            const std::int32_t* const y = labels.data() + n * positions;
            const sums s = take_sums(positions, classes, x, y, g);
            total += loss_of(s, positions, classes);
            write_gradient(s, positions, classes, y, g, 1.0 / static_cast<double>(samples));
        }
        flop_counter::count(14.0 * static_cast<double>(logits.size()), 4.0 * static_cast<double>(logits.bytes()));
        return {total / static_cast<double>(samples), std::move(gradient)};
    }

private:
    static constexpr index_t grain = 4096;  // positions

    /// Of one sample.
    struct sums {
        std::vector<double> both, predicted, labelled;  // I, P, G of each class
        double cross_entropy = 0;                       // Σ_v − log p_label
    };

    /// Writes the softmax over g, which may be x.
    template <class T>
    static sums take_sums(index_t positions, index_t classes, const T* x, const std::int32_t* y, T* g) {
        const auto k = static_cast<std::size_t>(classes);
        const auto blocks = static_cast<std::size_t>((positions + grain - 1) / grain);
        std::vector<double> parts(blocks * (3 * k + 1));
        parallel_chunks(positions, grain, [&](index_t block, index_t begin, index_t end) {
            double* const part = parts.data() + static_cast<std::size_t>(block) * (3 * k + 1);
            for (index_t v = begin; v < end; ++v) {
                const index_t label = y[v];
                require(label >= 0 && label < classes, "dice: label ", label, " of position ", v, " is not in [0, ",
                        classes, ')');
                const T* const row = x + v * classes;
                T* const p = g + v * classes;
                const T at_label = row[label], most = *std::max_element(row, row + classes);
                T sum = 0;
                for (index_t c = 0; c < classes; ++c) sum += p[c] = std::exp(row[c] - most);
                for (index_t c = 0; c < classes; ++c) {
                    p[c] /= sum;
                    part[k + static_cast<std::size_t>(c)] += static_cast<double>(p[c]);
                }
                part[static_cast<std::size_t>(label)] += static_cast<double>(p[label]);
                part[2 * k + static_cast<std::size_t>(label)] += 1;
                part[3 * k] += static_cast<double>(most + std::log(sum) - at_label);
            }
        });
        std::vector<double> all(3 * k + 1);
        for (std::size_t b = 0; b < blocks; ++b)
            for (std::size_t i = 0; i < all.size(); ++i) all[i] += parts[b * all.size() + i];
        const auto from = [&](std::size_t i) { return all.begin() + static_cast<std::ptrdiff_t>(i * k); };
        return {{from(0), from(1)}, {from(1), from(2)}, {from(2), from(3)}, all.back()};
    }

    double loss_of(const sums& s, index_t positions, index_t classes) const {
        double mean = 0;
        for (auto c = static_cast<std::size_t>(first_class); c < s.both.size(); ++c)
            mean += (2 * s.both[c] + smooth) / (s.predicted[c] + s.labelled[c] + smooth) /
                    static_cast<double>(classes - first_class);
        return dice_weight * (1 - mean) + cross_entropy_weight * s.cross_entropy / static_cast<double>(positions);
    }

    /// Makes of the softmax p the gradient of the loss, times `scale`.
    template <class T>
    void write_gradient(const sums& s, index_t positions, index_t classes, const std::int32_t* y, T* p,
                        double scale) const {
        // d loss / d p_vc = everywhere[c] + g_vc at_label[c]
        std::vector<T> everywhere(static_cast<std::size_t>(classes)), at_label(everywhere.size());
        for (auto c = static_cast<std::size_t>(first_class); c < everywhere.size(); ++c) {
            const double all = s.predicted[c] + s.labelled[c] + smooth,
                         weight = scale * dice_weight / static_cast<double>(classes - first_class);
            everywhere[c] = static_cast<T>(weight * (2 * s.both[c] + smooth) / (all * all));
            at_label[c] = static_cast<T>(-2 * weight / all);
        }
        const T entropy = static_cast<T>(scale * cross_entropy_weight / static_cast<double>(positions));
        parallel_for(positions, grain, [&](index_t begin, index_t end) {
            for (index_t v = begin; v < end; ++v) {
                T* const row = p + v * classes;
                const index_t label = y[v];
                const T extra = at_label[static_cast<std::size_t>(label)];
                T dot = row[label] * extra;  // Σ_c p_c d loss / d p_c
                for (index_t c = 0; c < classes; ++c) dot += row[c] * everywhere[static_cast<std::size_t>(c)];
                const T at = row[label] * extra - entropy;
                for (index_t c = 0; c < classes; ++c) row[c] *= everywhere[static_cast<std::size_t>(c)] - dot + entropy;
                row[label] += at;
            }
        });
    }
};

}  // namespace cairn
