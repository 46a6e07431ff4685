#pragma once
// Lab 1, task 6: a classifier of two layers, and the loop that trains it.
//   logits = relu(x W₁ᵀ + b₁) W₂ᵀ + b₂

#include "cross_entropy.hpp"
#include "layers.hpp"
#include "sgd.hpp"

#include <cairn/core/random.hpp>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

namespace student {

template <class T>
struct classifier {
    matrix<T> w1;  // (hidden, in)
    vec<T> b1;     // (hidden)
    matrix<T> w2;  // (classes, hidden)
    vec<T> b2;     // (classes)

    /// All parameters, in this order. Given.
    std::vector<std::span<T>> parameters() {
        return {{w1.data(), w1.size()}, {b1.data(), b1.size()}, {w2.data(), w2.size()}, {b2.data(), b2.size()}};
    }
    std::vector<std::span<const T>> parameters() const {
        return {{w1.data(), w1.size()}, {b1.data(), b1.size()}, {w2.data(), w2.size()}, {b2.data(), b2.size()}};
    }
};

/// Weights normal with variance 2 / fan in (He et al. 2015), biases zero; the same for the same seed. Given.
template <class T>
classifier<T> initialised(std::size_t in, std::size_t hidden, std::size_t classes, std::uint64_t seed) {
    const auto normal = [&](std::size_t rows, std::size_t columns, std::uint32_t stream) {
        const cairn::random_stream random{seed, stream, 0};
        matrix<T> w = matrix<T>::from_shape({rows, columns});
        const double deviation = std::sqrt(2.0 / static_cast<double>(columns));
        for (std::size_t i = 0; i < w.size(); ++i) w.data()[i] = static_cast<T>(deviation * random.normal(i));
        return w;
    };
    return {normal(hidden, in, 1), xt::zeros<T>({hidden}), normal(classes, hidden, 2), xt::zeros<T>({classes})};
}

/// The numbers 0 … n − 1 in an order that seed and epoch decide. Given.
inline std::vector<std::size_t> shuffled(std::size_t n, std::uint64_t seed, std::size_t epoch) {
    const cairn::random_stream random{seed, 3, static_cast<std::uint32_t>(epoch)};
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
    return order;
}

/// Task 6b. Of each row of x (batch, in): (batch, classes).
template <class T>
matrix<T> logits_of(const classifier<T>& net, const matrix<T>& x) {
    //! solution
    return linear_forward(relu(linear_forward(x, net.w1, net.b1)), net.w2, net.b2);
    //! starter
    // (void)net, (void)x;
    // throw std::logic_error("task 6b: logits_of is not written yet");
    //! end
}

template <class T>
struct classifier_gradient {
    double loss;             // mean over the rows
    classifier<T> gradient;  // of the loss, with respect to each parameter
};

/// Task 6b. Forward, loss, and backward through both layers.
template <class T>
classifier_gradient<T> gradient_of(const classifier<T>& net, const matrix<T>& x, const std::vector<int>& labels) {
    //! solution
    const matrix<T> before = linear_forward(x, net.w1, net.b1), hidden = relu(before);
    const loss_result<T> at = cross_entropy(linear_forward(hidden, net.w2, net.b2), labels);
    linear_gradients<T> second = linear_backward(hidden, net.w2, at.gradient);
    linear_gradients<T> first = linear_backward(x, net.w1, relu_backward(before, second.x));
    return {at.loss, {std::move(first.w), std::move(first.b), std::move(second.w), std::move(second.b)}};
    //! starter
    // (void)net, (void)x, (void)labels;
    // throw std::logic_error("task 6b: gradient_of is not written yet");
    //! end
}

struct training {
    std::size_t epochs = 10, batch = 32;
    sgd_config optimizer;
    std::uint64_t seed = 1;  // of the order
};

/// Task 6c. In epoch e = 0, 1, …: the rows in the order shuffled(rows, seed, e), cut into batches of c.batch (the last
/// one takes what is left), one step for each; the velocity lives as long as the training. Returns for each epoch the
/// mean over all rows of the loss that their batch had.
template <class T>
std::vector<double> train(classifier<T>& net, const matrix<T>& x, const std::vector<int>& labels, const training& c) {
    //! solution
    const std::size_t rows = x.shape(0);
    sgd<T> optimizer(c.optimizer);
    std::vector<double> losses;
    for (std::size_t epoch = 0; epoch < c.epochs; ++epoch) {
        const std::vector<std::size_t> order = shuffled(rows, c.seed, epoch);
        double sum = 0;
        for (std::size_t begin = 0; begin < rows; begin += c.batch) {
            const std::size_t count = std::min(c.batch, rows - begin);
            matrix<T> batch = matrix<T>::from_shape({count, x.shape(1)});
            std::vector<int> batch_labels(count);
            for (std::size_t n = 0; n < count; ++n) {
                std::ranges::copy(row(x, order[begin + n]), row(batch, n).begin());
                batch_labels[n] = labels[order[begin + n]];
            }
            const classifier_gradient<T> at = gradient_of(net, batch, batch_labels);
            optimizer.step(net.parameters(), at.gradient.parameters());
            sum += at.loss * static_cast<double>(count);
        }
        losses.push_back(sum / static_cast<double>(rows));
    }
    return losses;
    //! starter
    // (void)net, (void)x, (void)labels, (void)c;
    // throw std::logic_error("task 6c: train is not written yet");
    //! end
}

}  // namespace student
