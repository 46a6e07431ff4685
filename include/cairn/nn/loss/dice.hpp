#pragma once
// Soft Dice loss of segmentation (Milletari et al. 2016; Sudre et al. 2017), of each sample by itself:
//   p = softmax(logits),  g = one-hot labels;   of sample n and class c, sums over its positions v:
//   I = Σ p g    P = Σ p    G = Σ g    dice = (2 I + s) / (P + G + s)
//   loss_n = w (1 − mean_c dice) + u · mean_v (− log p_label)         mean over the classes from `first_class` on
//   d loss_n / d p_vc = w / classes · ((2 I + s) / (P + G + s)² − 2 g_vc / (P + G + s)),   then through the softmax
// value = mean over samples of loss_n: a batch cut into micro-batches has the loss and the gradient of the whole.
// Two passes: logits read and p written over the gradient's block, p read and the gradient written there.
// Tested against tests/oracle/losses.hpp and numerical gradients.

#include <cairn/device/cpu/dice.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/loss/loss.hpp>

#include <cstdint>

namespace cairn {

/// Loss of segmentation. Logits (samples, positions…, classes); labels: int32 in [0, classes), one for each position.
struct dice {
    double smooth = 1;                // s > 0: for classes that a sample lacks
    double dice_weight = 1;           // w
    double cross_entropy_weight = 0;  // u
    index_t first_class = 1;          // 1: without the background

    /// Throws on counts that do not fit and on a label out of range, naming row and label; on a GPU such a label makes
    /// the value NaN.
    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> logits, const tensor<std::int32_t, D>& labels) const {
        require(logits.rank() >= 3 && logits.size() > 0, "dice: logits have shape ", logits.shape(),
                "; expected (samples, positions…, classes)");
        require(labels.size() * logits.extent(-1) == logits.size(), "dice: ", labels.size(), " labels ", labels.shape(),
                " for logits ", logits.shape());
        require(smooth > 0, "dice: smooth ", smooth, "; it must be positive");
        require(first_class >= 0 && first_class < logits.extent(-1), "dice: classes from ", first_class, " on, of ",
                logits.extent(-1));
        const index_t samples = logits.extent(0), classes = logits.extent(-1), positions = labels.size() / samples;
        const auto workspace = [](const shape& s) { return tensor<double, D>(s, memory_category::workspace); };
        tensor<T, D> gradient = gradient_over(logits), factors({samples, 2, classes}, memory_category::workspace);
        tensor<double, D> sums = workspace({samples, dice_sums_each(classes)}), losses = workspace({samples}),
                          total = workspace({1});
        dice_sums(D{}, samples, positions, classes, logits.data(), labels.data(), gradient.data(), sums.data());
        for_each_sample(D{}, samples,
                        dice_of_sample<T>{samples, positions, classes, first_class, smooth, dice_weight,
                                          cross_entropy_weight, sums.data(), losses.data(), factors.data()});
        const double entropy = cross_entropy_weight / static_cast<double>(samples * positions);
        dice_gradient(D{}, samples, positions, classes, labels.data(), factors.data(), static_cast<T>(entropy),
                      gradient.data());
        sum_into(D{}, samples, losses.data(), total.data());
        scalar_on<D> value = scalar_of(std::move(total));
        value *= 1 / static_cast<double>(samples);
        return {std::move(value), std::move(gradient)};
    }
};

}  // namespace cairn
