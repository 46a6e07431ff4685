#pragma once
// Cross-entropy of softmax(logits) with integer labels.
//   t_k = (1 − ε) [k = y] + ε / classes            label smoothing ε (Szegedy et al. 2016, section 7)
//   loss_i = Σ_k w_k t_k (log Σ_j exp x_j − x_k)   class weights w, 1 unless given
//   value = Σ_i loss_i / Σ_i w_{y_i}               the mean over rows when w = 1; or, by rows, Σ_i loss_i / rows, whose
//                                                  mean over the parts of a batch is that of the batch
// Rows whose label is ignore_index are left out of both sums; their gradient is 0.
// Tested against a plain loop, numerical gradients and logits of ± 10 000.

#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/nn/loss/loss.hpp>
#include <cairn/nn/loss/weights_on_device.hpp>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace cairn {

namespace functors {

/// sum / total, which is not a number unless the total is above 0.
struct mean_by_weight {
    CAIRN_HD void operator()(double& sum, const double& total) const {
        sum = total > 0 ? sum / total : std::numeric_limits<double>::quiet_NaN();
    }
};

}  // namespace functors

/// Loss of classification. Logits (…, classes); labels: int32 in [0, classes), one for each row of logits.
struct cross_entropy {
    double label_smoothing = 0;                   // ε in [0, 1]
    std::vector<double> class_weights = {};       // one a class, or none
    weights_on_device kept = {};                  // of class_weights
    bool by_rows = false;                         // divide by rows in place of their weights
    std::int32_t ignore_index = nothing_ignored;  // label of rows that do not count

    /// Throws on a label out of range (naming row, label and classes), on label and weight counts that do not fit, on
    /// labels whose weights sum to 0. A GPU is not waited for: there a label out of range, or a sum of 0, makes the
    /// value NaN.
    template <class T, Device D>
    loss_result<T, D> operator()(tensor<T, D> logits, const tensor<std::int32_t, D>& labels) const {
        check(logits, labels);
        tensor<T, D> gradient = gradient_over(logits);
        scalar_on<D> value = run(logits, labels, gradient.data());
        return {std::move(value), std::move(gradient)};
    }

    /// The value alone, for evaluation.
    template <class T, Device D>
    double value(const tensor<T, D>& logits, const tensor<std::int32_t, D>& labels) const {
        check(logits, labels);
        return run(logits, labels, static_cast<T*>(nullptr));
    }

private:
    template <class T, Device D>
    void check(const tensor<T, D>& logits, const tensor<std::int32_t, D>& labels) const {
        require(logits.rank() >= 2 && logits.size() > 0, "cross_entropy: logits have shape ", logits.shape(),
                "; expected (rows…, classes)");
        const index_t classes = logits.shape().back(), rows = logits.size() / classes;
        require(labels.size() == rows, "cross_entropy: ", labels.size(), " labels ", labels.shape(), " for logits ",
                logits.shape());
        if (class_weights.empty()) return;
        require(static_cast<index_t>(class_weights.size()) == classes, "cross_entropy: ", class_weights.size(),
                " class weights for ", classes, " classes");
        require(*std::max_element(class_weights.begin(), class_weights.end()) > 0,
                "cross_entropy: the class weights of any labels sum to 0 or less; one of them must be positive");
    }

    template <class T, Device D>
    scalar_on<D> run(const tensor<T, D>& logits, const tensor<std::int32_t, D>& labels, T* gradient) const {
        const index_t classes = logits.shape().back(), rows = logits.size() / classes;
        const tensor<T, D> weights = kept.template of<T, D>(class_weights);
        tensor<T, D> losses({rows}, memory_category::workspace);
        tensor<double, D> all({1}, memory_category::workspace),
            divisor;  // Σ_i w_{y_i}, where the host does not know it
        if ((!class_weights.empty() && !by_rows) || ignore_index != nothing_ignored) {
            divisor = tensor<double, D>({1}, memory_category::workspace);
            label_weights_into(D{}, rows, classes, labels.data(), weights.data(), divisor.data(), ignore_index);
        }
        const double mean = divisor.empty() ? 1 / static_cast<double>(rows) : 1;
        softmax_cross_entropy(D{}, rows, classes, logits.data(), labels.data(), static_cast<T>(label_smoothing),
                              losses.data(), gradient, static_cast<T>(mean), weights.data(), divisor.data(),
                              ignore_index);
        sum_into(D{}, rows, losses.data(), all.data());
        if (!divisor.empty()) for_each(D{}, 1, functors::mean_by_weight{}, all.data(), divisor.data());
        scalar_on<D> value = scalar_of(std::move(all));
        value *= mean;
        return value;
    }
};

}  // namespace cairn
