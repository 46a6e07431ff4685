#pragma once
// What a run reports beside its loss.
//   top-k accuracy   share of samples whose label is among the k largest logits
//   R² = 1 − Σ (t − p)² / Σ (t − mean t)²     1 is perfect, 0 as good as the mean of the targets
//   mean absolute error

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

namespace cairn {

/// Number of rows whose label is among the k largest of (…, classes) logits. Of equal logits the one of the lower class
/// counts as larger; a row with a logit that is not a number is wrong. Throws when the numbers of rows differ or a
/// label is out of range.
template <class T>
index_t top_k_correct(const tensor<T, cpu>& logits, const tensor<std::int32_t, cpu>& labels, index_t k = 1) {
    require(logits.rank() >= 2 && logits.size() > 0, "top_k_correct: logits have shape ", logits.shape(),
            "; expected (rows…, classes)");
    const index_t classes = logits.shape().back(), rows = logits.size() / classes;
    require(labels.size() == rows, "top_k_correct: ", labels.size(), " labels ", labels.shape(), " for logits ",
            logits.shape());
    return parallel_sum<index_t>(rows, 64, [&](index_t begin, index_t end) {
        index_t correct = 0;
        for (index_t row = begin; row < end; ++row) {
            const T* x = logits.data() + row * classes;
            const index_t label = labels[row];
            require(label >= 0 && label < classes, "top_k_correct: label ", label, " of row ", row, " is not in [0, ",
                    classes, ')');
            index_t above = 0;
            bool broken = false;
            for (index_t c = 0; c < classes; ++c) {
                above += x[c] > x[label] || (c < label && x[c] == x[label]);
                broken |= std::isnan(static_cast<double>(x[c]));
            }
            correct += above < k && !broken;
        }
        return correct;
    });
}

/// Error of a regression, gathered batch by batch, for each output and over all of them. Variances grow by Welford's
/// formula, so that a large mean does not cancel them.
class regression_metrics {
public:
    explicit regression_metrics(index_t outputs) : of_(static_cast<std::size_t>(outputs)) {}

    /// Adds predictions and targets (samples, outputs…). Throws on other shapes.
    template <class T>
    void add(const tensor<T, cpu>& prediction, const tensor<T, cpu>& target) {
        const auto outputs = static_cast<index_t>(of_.size());
        require(prediction.shape() == target.shape() && prediction.rank() >= 1 &&
                    prediction.size() == prediction.extent(0) * outputs,
                "regression_metrics: prediction ", prediction.shape(), ", target ", target.shape(),
                "; expected (samples, ", outputs, ')');
        for (index_t i = 0; i < prediction.size(); ++i)
            of_[static_cast<std::size_t>(i % outputs)].add(static_cast<double>(prediction[i]),
                                                           static_cast<double>(target[i]));
    }

    /// R² of one output; NaN when its targets do not vary or there are none.
    double r2(index_t output) const {
        const sums& s = of_.at(static_cast<std::size_t>(output));
        return s.spread > 0 ? 1 - s.squared / s.spread : std::nan("");
    }
    /// Mean R² over the outputs.
    double r2() const {
        return mean([this](index_t k) { return r2(k); });
    }

    /// Mean absolute error of one output, in its units.
    double mae(index_t output) const {
        const sums& s = of_.at(static_cast<std::size_t>(output));
        return s.absolute / s.count;
    }
    double mae() const {
        return mean([this](index_t k) { return mae(k); });
    }

    /// Root of the mean squared error of one output, in its units.
    double rmse(index_t output) const {
        const sums& s = of_.at(static_cast<std::size_t>(output));
        return std::sqrt(s.squared / s.count);
    }

    index_t outputs() const { return static_cast<index_t>(of_.size()); }
    index_t samples() const { return of_.empty() ? 0 : static_cast<index_t>(of_.front().count); }

private:
    struct sums {
        double count = 0, mean = 0, spread = 0;  // Welford's, of the targets
        double squared = 0, absolute = 0;        // of the errors
        void add(double p, double t) {
            count += 1;
            const double before = t - mean;
            mean += before / count;
            spread += before * (t - mean);
            squared += (t - p) * (t - p);
            absolute += std::abs(t - p);
        }
    };

    template <class Of>
    double mean(Of of) const {
        double sum = 0;
        for (index_t k = 0; k < outputs(); ++k) sum += of(k);
        return sum / static_cast<double>(outputs());
    }

    std::vector<sums> of_;
};

}  // namespace cairn
