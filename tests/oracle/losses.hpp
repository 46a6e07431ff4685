#pragma once
// The losses as plain loops in double: the definition that the library is tested against. Values only; gradients are
// tested by differences of these values.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace oracle {

/// Mean over rows weighted by the class of each row's label.
inline double cross_entropy(const std::vector<double>& logits, const std::vector<int>& labels, double smoothing,
                            const std::vector<double>& class_weights) {
    const std::size_t rows = labels.size(), classes = logits.size() / rows;
    const auto weight = [&](std::size_t k) { return class_weights.empty() ? 1.0 : class_weights[k]; };
    double sum = 0, weights = 0;
    for (std::size_t row = 0; row < rows; ++row) {
        const double* x = logits.data() + row * classes;
        const double largest = *std::max_element(x, x + classes);
        double total = 0;
        for (std::size_t k = 0; k < classes; ++k) total += std::exp(x[k] - largest);
        const auto label = static_cast<std::size_t>(labels[row]);
        for (std::size_t k = 0; k < classes; ++k) {
            const double target = (k == label ? 1 - smoothing : 0) + smoothing / static_cast<double>(classes);
            sum += weight(k) * target * (largest + std::log(total) - x[k]);
        }
        weights += weight(label);
    }
    return sum / weights;
}

inline double weight_of(std::size_t i, std::size_t size, const std::vector<double>& outputs,
                        const std::vector<double>& samples, std::size_t rows) {
    const std::size_t columns = size / rows;
    return (outputs.empty() ? 1 : outputs[i % columns]) * (samples.empty() ? 1 : samples[i / columns]);
}

inline double mean_squared(const std::vector<double>& x, const std::vector<double>& t, std::size_t rows,
                           const std::vector<double>& outputs, const std::vector<double>& samples) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
        sum += weight_of(i, x.size(), outputs, samples, rows) * (x[i] - t[i]) * (x[i] - t[i]);
    return sum / static_cast<double>(x.size());
}

inline double huber(const std::vector<double>& x, const std::vector<double>& t, double delta, std::size_t rows,
                    const std::vector<double>& outputs, const std::vector<double>& samples) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double d = std::abs(x[i] - t[i]);
        sum += weight_of(i, x.size(), outputs, samples, rows) * (d <= delta ? d * d / 2 : delta * (d - delta / 2));
    }
    return sum / static_cast<double>(x.size());
}

inline double binary_cross_entropy(const std::vector<double>& x, const std::vector<double>& t) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i)
        sum += std::max(x[i], 0.0) - x[i] * t[i] + std::log1p(std::exp(-std::abs(x[i])));
    return sum / static_cast<double>(x.size());
}

/// Of targets 1, 0 and −1: those below 0 count in the divisor alone.
inline double answer_cross_entropy(const std::vector<double>& x, const std::vector<double>& t) {
    double sum = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
        if (t[i] < 0) continue;
        const double p = 1 / (1 + std::exp(-x[i]));
        sum -= t[i] == 1 ? std::log(p) : std::log(1 - p);
    }
    return sum / static_cast<double>(x.size());
}

/// Of (samples, positions, classes): mean over samples of
/// dice_weight (1 − mean_c (2 I + s) / (P + G + s)) + cross_entropy_weight · mean of − log p at the labels.
inline double dice(const std::vector<double>& logits, const std::vector<int>& labels, std::size_t samples,
                   double smooth, double dice_weight, double cross_entropy_weight, std::size_t first_class) {
    const std::size_t positions = labels.size() / samples, classes = logits.size() / labels.size();
    double loss = 0;
    for (std::size_t n = 0; n < samples; ++n) {
        std::vector<double> both(classes), predicted(classes), labelled(classes);
        double entropy = 0, mean = 0;
        for (std::size_t v = n * positions; v < (n + 1) * positions; ++v) {
            const double* x = logits.data() + v * classes;
            const auto label = static_cast<std::size_t>(labels[v]);
            double total = 0;
            for (std::size_t c = 0; c < classes; ++c) total += std::exp(x[c]);
            for (std::size_t c = 0; c < classes; ++c) {
                const double p = std::exp(x[c]) / total, g = c == label ? 1 : 0;
                both[c] += p * g;
                predicted[c] += p;
                labelled[c] += g;
            }
            entropy -= std::log(std::exp(x[label]) / total);
        }
        for (std::size_t c = first_class; c < classes; ++c)
            mean += (2 * both[c] + smooth) / (predicted[c] + labelled[c] + smooth);
        mean /= static_cast<double>(classes - first_class);
        loss += dice_weight * (1 - mean) + cross_entropy_weight * entropy / static_cast<double>(positions);
    }
    return loss / static_cast<double>(samples);
}

}  // namespace oracle
