#pragma once
// Common part of objectives over classes. y: rows of logits (…, classes), one for each sample, token, voxel or node. It
// has the loss, the count of correct rows, and the gradient for drawn labels. Loss is cross_entropy, dice, or
// cross-entropy of logits cut over ranks by classes (parallel/tensor/vocabulary_cross_entropy.hpp), then collective.

#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/objectives/objective.hpp>

#include <cmath>
#include <concepts>
#include <cstdint>
#include <utility>

namespace cairn {

template <class Loss = cross_entropy>
struct class_rows {
    static constexpr bool has_whole_rows = !requires(const Loss& of, const tensor<float>& y) {
        of.predicted_classes(y);
    };
    static constexpr averaged_outputs averages =
        has_whole_rows ? averaged_outputs::class_probabilities : averaged_outputs::none;

    target_info info = {};
    Loss row_loss = {};

    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        return row_loss(std::move(y), s.labels);
    }

    /// Of each row the class of the largest output.
    template <Device D>
    tensor<std::int32_t, D> predicted_classes(const tensor<float, D>& y) const {
        if constexpr (!has_whole_rows) {
            return row_loss.predicted_classes(y);
        } else {
            const index_t classes = y.extent(-1), rows = y.size() / classes;
            tensor<std::int32_t, D> guesses({rows}, memory_category::workspace);
            argmax_rows(D{}, rows, classes, y.data(), guesses.data());
            return guesses;
        }
    }
    template <Device D>
    scalar_on<D> correct(const tensor<float, D>& y, const samples<D>& s) const {
        const tensor<std::int32_t, D> guesses = predicted_classes(y);
        tensor<double, D> hits({1}, memory_category::workspace);
        count_equal_into(D{}, guesses.size(), guesses.data(), s.labels.data(), hits.data());
        return scalar_of(std::move(hits));
    }

    /// Gradient of cross-entropy for labels drawn from softmax(y); for Dice too, which is no likelihood. A sample's
    /// loss is the mean over its T rows (tokens, voxels; all nodes, with a label or without): its
    /// Hessian is Σ H_t / T, but gradients of that mean, from T draws, give Σ H_t / T².
    template <Device D>
        requires(has_whole_rows)
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first)
    const {
        const index_t classes = y.extent(-1), rows = y.size() / classes;
        const float root = std::sqrt(static_cast<float>(rows) / static_cast<float>(y.extent(0)));
        tensor<std::int32_t, D> labels({rows}, memory_category::workspace);
        sample_classes(D{}, rows, classes, y.data(), random, labels.data(), first * (rows / y.extent(0)));
        cross_entropy likelihood;
        if constexpr (std::same_as<Loss, cross_entropy>) likelihood = row_loss;
        tensor<float, D> gradient = likelihood(std::move(y), labels).gradient;
        if (root != 1) for_each(functors::times<float>{root}, gradient);
        return gradient;
    }
};

}  // namespace cairn
