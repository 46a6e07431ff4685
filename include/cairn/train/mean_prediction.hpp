#pragma once
// The mean of several networks' predictions for the same samples (an ensemble; Hansen & Salamon 1990). Of classes it is
// the mean of the probabilities softmax(y) of each row, of values the mean of the outputs y.
//   each network in turn:  add(y) for each of its batches, then next_network()
//   afterwards:            output() for each batch: outputs y whose prediction is that mean, for losses and figures

#include <cairn/core/tensor.hpp>
#include <cairn/objectives/objective.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace cairn {

/// softmax of a row of outputs, on the host.
inline std::vector<double> class_probabilities(const float* row, index_t classes) {
    const double most = static_cast<double>(*std::max_element(row, row + classes));
    std::vector<double> all;
    for (index_t k = 0; k < classes; ++k) all.push_back(std::exp(static_cast<double>(row[k]) - most));
    const double sum = std::accumulate(all.begin(), all.end(), 0.0);
    for (double& p : all) p /= sum;
    return all;
}

/// See the top of the file. It keeps one prediction of all samples on the host, in float.
class mean_prediction {
public:
    /// Throws where the objective does not say what of its outputs has a mean.
    explicit mean_prediction(averaged_outputs what) : what_(what) {
        require(what != averaged_outputs::none,
                "the mean of several versions' predictions: this objective (loss.kind) does not say what of its "
                "outputs is averaged; evaluate versions one by one, or give it a constant `averages`");
    }

    /// Adds a network's outputs for its next batch.
    template <Device D>
    void add(const tensor<float, D>& y) {
        tensor<float> one = y.on_host(memory_category::workspace);
        if (what_ == averaged_outputs::class_probabilities) to_probabilities(one);
        if (networks_ == 0) return sums_.push_back(std::move(one));
        tensor<float>& sum = batch(one.shape());
        for (index_t i = 0; i < sum.size(); ++i) sum[i] += one[i];
    }
    /// That was the last batch of a network.
    void next_network() {
        ++networks_;
        at_ = 0;
    }
    /// Outputs for the next batch, whose prediction is the mean over all networks.
    template <Device D>
    tensor<float, D> output(const shape& s) {
        tensor<float> mean = batch(s).clone(memory_category::workspace);
        for (index_t i = 0; i < mean.size(); ++i) {
            mean[i] /= static_cast<float>(networks_);
            if (what_ == averaged_outputs::class_probabilities)  // softmax(log p) = p
                mean[i] = std::log(std::max(mean[i], std::numeric_limits<float>::min()));
        }
        tensor<float, D> there(s, memory_category::activations);
        D::copy_to_device(there.data(), mean.data(), mean.bytes());
        return there;
    }

private:
    tensor<float>& batch(const shape& s) {
        require(at_ < sums_.size() && sums_[at_].shape() == s, "mean of predictions: batch ", at_, " has outputs ", s,
                ", which the first network does not have");
        return sums_[at_++];
    }
    static void to_probabilities(tensor<float>& y) {
        const index_t classes = y.extent(-1);
        for (float* row = y.data(); row != y.data() + y.size(); row += classes)
            std::ranges::transform(class_probabilities(row, classes), row,
                                   [](double p) { return static_cast<float>(p); });
    }

    averaged_outputs what_;
    std::vector<tensor<float>> sums_;  // of each batch
    int networks_ = 0;
    std::size_t at_ = 0;  // the next batch
};

}  // namespace cairn
