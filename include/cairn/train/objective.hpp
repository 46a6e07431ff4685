#pragma once
// What a network is trained for: which loss its output goes into, and how a test set judges it.
//   classes         cross-entropy              accuracy, top-5 accuracy, confusion counts; of a text, where each
//                                              position predicts the next token: bits a token (log2 of the
//                                              perplexity) and accuracy; of a volume with a class for each voxel,
//                                              by cross-entropy, soft Dice or their sum: Dice of each class but the
//                                              background, 2 |A ∩ B| / (|A| + |B|), the mean over volumes; of a
//                                              graph's nodes: accuracy over those that have a label
//   values          mean squared error         R² and mean absolute error of each value, in physical units
//   reconstruction  binary cross-entropy of each pixel, summed over the image      squared error an image

#include <cairn/comm/any.hpp>
#include <cairn/core/device_scalar.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/data/prefetcher.hpp>
#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/loss/binary_cross_entropy.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/dice.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numbers>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

enum class objective_kind { classes, values, reconstruction };

/// Of classes.
enum class class_loss { cross_entropy, dice, dice_cross_entropy };

/// Sums over the batches of one evaluation.
struct evaluation {
    index_t count = 0;
    double loss_sum = 0, squared_error_sum = 0;
    index_t correct = 0, correct_top5 = 0;              // positions, where a sample has several
    index_t labelled = 0;                               // nodes of graphs that have a label
    std::vector<std::vector<index_t>> confusion;        // [true][predicted]
    std::vector<std::vector<double>> truth, predicted;  // [value][sample], physical units
    std::vector<double> dice_sum, dice_volumes;         // [class]: over volumes where it is true or predicted

    double loss() const { return count ? loss_sum / static_cast<double>(count) : 0; }
};

/// See the top of the file.
class objective {
public:
    struct config {
        objective_kind kind = objective_kind::classes;
        double label_smoothing = 0;
        // The ranks over which the outputs of classes are cut; null: they are whole. All call these functions alike.
        tensor_axis<any_communicator>* vocabulary = nullptr;
        class_loss classes = class_loss::cross_entropy;
        double dice_smooth = 1;
    };

    objective(config c, target_info info) : c_(c), info_(std::move(info)) {}

    objective_kind kind() const { return c_.kind; }
    const target_info& targets() const { return info_; }

    /// Loss and gradient of the model's output y for these samples. The gradient may take y's block.
    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        if constexpr (std::same_as<D, cpu>)
            if (c_.vocabulary)
                return vocabulary_cross_entropy<any_communicator>{c_.vocabulary, info_.count(), c_.label_smoothing}(
                    std::move(y), s.labels);
        if (c_.kind == objective_kind::classes && c_.classes != class_loss::cross_entropy)
            return dice_loss(std::move(y), s);
        if (of_nodes()) return loss_of_labelled(std::move(y), s);
        if (c_.kind == objective_kind::classes) return entropy(std::move(y), s);
        if (c_.kind == objective_kind::values) return mean_squared{}(std::move(y), s.targets);
        // mean over the batch of the sum over the pixels
        const index_t pixels = y.size() / y.extent(0);
        const tensor<float, D> target = s.x.reshaped(y.shape());
        auto result = binary_cross_entropy{}(std::move(y), target);
        result.value *= static_cast<double>(pixels);
        for_each(functors::times<float>{static_cast<float>(pixels)}, result.gradient);
        return result;
    }

    /// What K-FAC takes for the gradient over y when labels are drawn from what the model predicts with output y:
    /// classes from softmax(y), values from the normal distribution around y of which the loss is the negative
    /// logarithm, pixels from sigmoid(y). g being a sample's part times the number of samples, the mean of g gᵀ over
    /// draws is the Hessian over y of the sample's loss. y begins with sample `first_sample` of the batch of all ranks,
    /// and each sample draws numbers of its own.
    template <Device D>
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first_sample = 0) const {
        samples<D> drawn;
        const index_t first = y.empty() ? 0 : first_sample * (y.size() / y.extent(0));
        if (c_.kind == objective_kind::classes) {
            const index_t classes = y.shape().back(), rows = y.size() / classes;
            // A sample's loss is the mean over its T rows (tokens, voxels; all nodes, with a label or without): its
            // Hessian is Σ H_t / T, but gradients of that mean, from T draws, give Σ H_t / T².
            const float root = std::sqrt(static_cast<float>(rows) / static_cast<float>(y.extent(0)));
            drawn.labels = tensor<std::int32_t, D>({rows}, memory_category::workspace);
            sample_classes(D{}, rows, classes, y.data(), random, drawn.labels.data(), first / classes);
            // Dice is no likelihood: the model is what its softmax predicts.
            const bool likelihood = c_.classes == class_loss::cross_entropy && !of_nodes();
            auto drawn_loss = likelihood ? loss(std::move(y), drawn) : entropy(std::move(y), drawn);
            if (root != 1) for_each(functors::times<float>{root}, drawn_loss.gradient);
            return std::move(drawn_loss.gradient);
        }
        if (c_.kind == objective_kind::values) {  // a mean of squares: −log p = (y − t)² / count of a sample's values
            const double count = static_cast<double>(y.extent(0)), values = static_cast<double>(y.size()) / count;
            sample_normals(D{}, y.size(), static_cast<float>(std::sqrt(2 / values) / count), random, y.data(), first);
            return y;
        }
        drawn.x = tensor<float, D>(y.shape(), memory_category::workspace);
        sample_pixels(D{}, y.size(), y.data(), random, drawn.x.data(), first);
        return loss(std::move(y), drawn).gradient;
    }

    /// Number of rows of y (samples, or positions) whose class has the largest output; 0 for other tasks.
    template <Device D>
    scalar_on<D> correct(const tensor<float, D>& y, const samples<D>& s) const {
        if (c_.kind != objective_kind::classes || y.size() == 0) return 0;
        const index_t classes = y.shape().back(), count = y.size() / classes;
        tensor<std::int32_t, D> guesses({count}, memory_category::workspace);
        argmax_rows(D{}, count, classes, y.data(), guesses.data());
        if constexpr (std::same_as<D, cpu>)
            if (c_.vocabulary) to_argmax_of_all(*c_.vocabulary, info_.count(), y, guesses);
        if constexpr (std::same_as<D, cpu>) {
            const std::int32_t* const guess = guesses.data();
            return std::inner_product(guess, guess + count, s.labels.data(), 0.0, std::plus<>{}, std::equal_to<>{});
        } else {
            tensor<double, D> hits({1}, memory_category::workspace);
            count_equal_into(D{}, count, guesses.data(), s.labels.data(), hits.data());
            return scalar_on<D>(std::move(hits));
        }
    }

    /// Adds a batch to a score; y as the model gave it in evaluation, on the host.
    void add(evaluation& s, const tensor<float>& y, const batch& b) const {
        if (c_.kind == objective_kind::classes) {
            if (info_.labels_each == 1)
                add_classes(s, c_.vocabulary ? c_.vocabulary->gather(y, -1, info_.count(), "scores") : y.share(), b);
            else
                s.correct += static_cast<index_t>(static_cast<double>(correct(y, samples_on<cpu>(b))));
            if (of_voxels()) add_dice(s, y, b);
            if (of_nodes())
                s.labelled += b.labels.size() - std::count(b.labels.span().begin(), b.labels.span().end(), -1);
        }
        if (c_.kind == objective_kind::values) add_values(s, y, b);
        if (c_.kind == objective_kind::reconstruction)
            for (index_t i = 0; i < y.size(); ++i) {
                const double error = 1.0 / (1.0 + std::exp(-static_cast<double>(y[i]))) - static_cast<double>(b.x[i]);
                s.squared_error_sum += error * error;
            }
        s.loss_sum += loss(y.clone(), samples_on<cpu>(b)).value * static_cast<double>(b.count);
        s.count += b.count;
    }

    /// The figures of a score by name; the first one is what the task is judged by.
    std::vector<std::pair<std::string, double>> metrics(const evaluation& s) const {
        const double n = static_cast<double>(std::max<index_t>(s.count, 1));
        if (of_voxels()) return voxel_metrics(s);
        if (of_nodes())
            return {
                {"accuracy", static_cast<double>(s.correct) / static_cast<double>(std::max<index_t>(s.labelled, 1))}};
        if (c_.kind == objective_kind::classes && info_.labels_each > 1)
            return {{"bits_per_token", s.loss() / std::numbers::ln2},
                    {"token_accuracy", static_cast<double>(s.correct) / n / static_cast<double>(info_.labels_each)}};
        if (c_.kind == objective_kind::classes) {
            std::vector<std::pair<std::string, double>> all{{"accuracy", static_cast<double>(s.correct) / n}};
            if (info_.count() > 10) all.emplace_back("top5_accuracy", static_cast<double>(s.correct_top5) / n);
            return all;
        }
        if (c_.kind == objective_kind::reconstruction) return {{"squared_error", s.squared_error_sum / n}};
        std::vector<std::pair<std::string, double>> all;
        double unexplained = 0;
        for (std::size_t k = 0; k < s.truth.size(); ++k) {
            double mean = 0, total = 0, residual = 0, absolute = 0;
            for (double t : s.truth[k]) mean += t / n;
            for (std::size_t i = 0; i < s.truth[k].size(); ++i) {
                const double t = s.truth[k][i], e = s.predicted[k][i] - t;
                total += (t - mean) * (t - mean);
                residual += e * e;
                absolute += std::abs(e);
            }
            all.emplace_back("r2_" + info_.names[k], total > 0 ? 1 - residual / total : 0);
            all.emplace_back("mae_" + info_.names[k], absolute / n);
            unexplained += total > 0 ? residual / total / static_cast<double>(s.truth.size()) : 0;
        }
        // Mean squared error of always predicting the mean, over that of the network, values weighted alike.
        all.insert(all.begin(), {"times_better_than_mean", unexplained > 0 ? 1 / unexplained : 0});
        return all;
    }

private:
    bool of_voxels() const {
        return c_.kind == objective_kind::classes && info_.labels_each > 1 && info_.labels == label_place::voxels;
    }

    bool of_nodes() const {
        return c_.kind == objective_kind::classes && info_.labels_each > 1 && info_.labels == label_place::nodes;
    }

    // Of the rows whose label is not −1: the mean over them; the others' gradient is 0.
    template <Device D>
    loss_result<float, D> loss_of_labelled(tensor<float, D> y, const samples<D>& s) const {
        if constexpr (std::same_as<D, cpu>) {
            const index_t classes = y.extent(-1);
            std::vector<index_t> rows;
            for (index_t r = 0; r < s.labels.size(); ++r)
                if (s.labels[r] >= 0) rows.push_back(r);
            require(!rows.empty(), "graph: no node of this batch has a label; nothing can be learnt or tested");
            tensor<float> outputs({std::ssize(rows), classes}, memory_category::workspace);
            samples<cpu> some;
            some.labels = tensor<std::int32_t>({std::ssize(rows)}, memory_category::workspace);
            for (index_t i = 0; i < std::ssize(rows); ++i) {
                const index_t r = rows[static_cast<std::size_t>(i)];
                some.labels[i] = s.labels[r];
                std::copy_n(y.data() + r * classes, classes, outputs.data() + i * classes);
            }
            auto [value, gradient] = entropy(std::move(outputs), some);
            tensor<float> all = gradient_over(y);
            std::fill(all.span().begin(), all.span().end(), 0.0f);
            for (index_t i = 0; i < std::ssize(rows); ++i)
                std::copy_n(gradient.data() + i * classes, classes,
                            all.data() + rows[static_cast<std::size_t>(i)] * classes);
            return {value, std::move(all)};
        } else {
            fail("graphs are for train.device = cpu; not for ", D::name);
        }
    }

    template <Device D>
    loss_result<float, D> entropy(tensor<float, D> y, const samples<D>& s) const {
        return cross_entropy{.label_smoothing = c_.label_smoothing, .class_weights = {}}(std::move(y), s.labels);
    }

    template <Device D>
    loss_result<float, D> dice_loss(tensor<float, D> y, const samples<D>& s) const {
        if constexpr (std::same_as<D, cpu>)
            return dice{.smooth = c_.dice_smooth,
                        .cross_entropy_weight = c_.classes == class_loss::dice_cross_entropy ? 1.0 : 0.0}(std::move(y),
                                                                                                          s.labels);
        else
            fail("the Dice loss is for train.device = cpu; on ", D::name, " take loss.kind = cross_entropy");
    }

    // Of each volume by itself: voxels of a class that are true, predicted, and both.
    void add_dice(evaluation& s, const tensor<float>& y, const batch& b) const {
        const index_t k = info_.count();
        const auto classes = static_cast<std::size_t>(k);
        s.dice_sum.resize(classes);
        s.dice_volumes.resize(classes);
        tensor<std::int32_t> guesses({b.labels.size()}, memory_category::workspace);
        argmax_rows(cpu{}, b.labels.size(), k, y.data(), guesses.data());
        for (index_t i = 0; i < b.count; ++i) {
            std::vector<double> both(classes), either(classes);  // |A ∩ B| and |A| + |B|
            for (index_t v = i * info_.labels_each; v < (i + 1) * info_.labels_each; ++v) {
                const auto label = static_cast<std::size_t>(b.labels[v]), guess = static_cast<std::size_t>(guesses[v]);
                both[label] += label == guess;
                ++either[label];
                ++either[guess];
            }
            for (std::size_t c = 0; c < classes; ++c) {
                if (either[c] == 0) continue;
                s.dice_sum[c] += 2 * both[c] / either[c];
                ++s.dice_volumes[c];
            }
        }
    }

    std::vector<std::pair<std::string, double>> voxel_metrics(const evaluation& s) const {
        const double voxels = static_cast<double>(std::max<index_t>(s.count, 1) * info_.labels_each);
        std::vector<std::pair<std::string, double>> all{{"dice", 0},
                                                        {"voxel_accuracy", static_cast<double>(s.correct) / voxels}};
        for (std::size_t c = 1; c < s.dice_sum.size(); ++c) {
            const double mean = s.dice_volumes[c] > 0 ? s.dice_sum[c] / s.dice_volumes[c] : 0;
            all.emplace_back("dice_" + info_.names[c], mean);
            all[0].second += mean / static_cast<double>(s.dice_sum.size() - 1);
        }
        return all;
    }

    static index_t argmax(const tensor<float>& y, index_t row) {
        const index_t k = y.extent(1);
        const float* first = y.data() + row * k;
        return std::max_element(first, first + k) - first;
    }

    void add_classes(evaluation& s, const tensor<float>& y, const batch& b) const {
        const index_t k = y.extent(1);
        if (s.confusion.empty())
            s.confusion.assign(static_cast<std::size_t>(k), std::vector<index_t>(static_cast<std::size_t>(k), 0));
        for (index_t i = 0; i < b.count; ++i) {
            const index_t label = b.labels[i], guess = argmax(y, i);
            s.correct += guess == label;
            ++s.confusion[static_cast<std::size_t>(label)][static_cast<std::size_t>(guess)];
            index_t before = 0;  // as argmax has it: of equals the first one
            const float score = y[i * k + label];
            for (index_t j = 0; j < k; ++j) before += y[i * k + j] > score || (j < label && y[i * k + j] == score);
            s.correct_top5 += before < 5 && !std::isnan(score);
        }
    }

    void add_values(evaluation& s, const tensor<float>& y, const batch& b) const {
        const auto k = static_cast<std::size_t>(y.extent(1));
        s.truth.resize(k);
        s.predicted.resize(k);
        for (index_t i = 0; i < b.count; ++i)
            for (std::size_t j = 0; j < k; ++j) {
                const auto physical = [&](float v) {
                    return static_cast<double>(info_.mean[j]) +
                           static_cast<double>(info_.scale[j]) * static_cast<double>(v);
                };
                s.truth[j].push_back(physical(b.targets[i * y.extent(1) + static_cast<index_t>(j)]));
                s.predicted[j].push_back(physical(y[i * y.extent(1) + static_cast<index_t>(j)]));
            }
    }

    config c_;
    target_info info_;
};

}  // namespace cairn
