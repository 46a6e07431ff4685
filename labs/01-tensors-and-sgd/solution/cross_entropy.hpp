#pragma once
// Lab 1, task 4: from scores to a loss. For one row x of logits and its label k:
//   p_j = exp(x_j) / Σ_i exp(x_i)      softmax
//   loss = −log p_k                    cross-entropy
// The loss of a batch is the mean over its rows.

#include "tensors.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

namespace student {

/// Task 4a. Of each row. Finite logits of any size give probabilities, never NaN.
template <class T>
matrix<T> softmax(const matrix<T>& logits) {
    //! solution
    matrix<T> p = logits;
    for (std::size_t n = 0; n < p.shape(0); ++n) {
        const auto p_n = row(p, n);
        const T largest = *std::max_element(p_n.begin(), p_n.end());
        T sum = 0;
        for (T& v : p_n) sum += v = std::exp(v - largest);
        for (T& v : p_n) v /= sum;
    }
    return p;
    //! starter
    // (void)logits;
    // throw std::logic_error("task 4a: softmax is not written yet");
    //! end
}

template <class T>
struct loss_result {
    double loss;         // mean over the rows
    matrix<T> gradient;  // of that mean with respect to the logits, of their shape
};

/// Task 4b. labels: one for each row, in [0, classes). Finite for all finite logits that differ by less than the
/// largest T. Throws std::invalid_argument on a batch without rows, a number of labels that is not that of the rows,
/// and a label out of range.
template <class T>
loss_result<T> cross_entropy(const matrix<T>& logits, const std::vector<int>& labels) {
    //! solution
    const std::size_t batch = logits.shape(0), classes = logits.shape(1);
    if (batch == 0 || labels.size() != batch)
        throw std::invalid_argument("cross_entropy: one label for each of at least one row");
    const T share = T(1) / static_cast<T>(batch);
    loss_result<T> result{0, softmax(logits)};
    for (std::size_t n = 0; n < batch; ++n) {
        if (labels[n] < 0 || static_cast<std::size_t>(labels[n]) >= classes)
            throw std::invalid_argument("cross_entropy: label " + std::to_string(labels[n]) + " of row " +
                                        std::to_string(n) + " is not in [0, " + std::to_string(classes) + ")");
        const auto k = static_cast<std::size_t>(labels[n]);
        const auto x_n = row(logits, n);
        const T largest = *std::max_element(x_n.begin(), x_n.end());
        T sum = 0;
        for (const T v : x_n) sum += std::exp(v - largest);
        result.loss += static_cast<double>(std::log(sum) - (x_n[k] - largest));
        result.gradient(n, k) -= T(1);
        for (T& g : row(result.gradient, n)) g *= share;
    }
    result.loss /= static_cast<double>(batch);
    return result;
    //! starter
    // (void)logits, (void)labels;
    // throw std::logic_error("task 4b: cross_entropy is not written yet");
    //! end
}

}  // namespace student
