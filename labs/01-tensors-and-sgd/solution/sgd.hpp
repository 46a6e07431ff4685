#pragma once
// Lab 1, task 6a: stochastic gradient descent with momentum and weight decay.
//
//   g ← g + λ θ        weight decay
//   v ← μ v + g        velocity, zero before the first step
//   θ ← θ − η v        learning rate
//
// This order, with η outside of v, is PyTorch's and this library's: when η changes, the velocity that was gathered
// counts with the new one.

#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

struct sgd_config {
    double lr = 0.1;          // η
    double momentum = 0.9;    // μ
    double weight_decay = 0;  // λ
};

template <class T>
class sgd {
public:
    explicit sgd(sgd_config c) : config(c) {}

    /// One step: parameters[i] changes, gradients[i] does not. Every call brings the same parameters in the same order,
    /// and i is what they are known by, for their memory may move. Throws std::invalid_argument where a gradient is not
    /// of its parameter's size.
    void step(const std::vector<std::span<T>>& parameters, const std::vector<std::span<const T>>& gradients) {
        //! solution
        if (parameters.size() != gradients.size()) throw std::invalid_argument("sgd: one gradient for each parameter");
        velocities_.resize(parameters.size());
        const T lr = static_cast<T>(config.lr), momentum = static_cast<T>(config.momentum),
                decay = static_cast<T>(config.weight_decay);
        for (std::size_t i = 0; i < parameters.size(); ++i) {
            const std::span<T> theta = parameters[i];
            const std::span<const T> gradient = gradients[i];
            std::vector<T>& v = velocities_[i];
            if (theta.size() != gradient.size()) throw std::invalid_argument("sgd: sizes differ");
            v.resize(theta.size());
            for (std::size_t k = 0; k < theta.size(); ++k) {
                const T g = gradient[k] + decay * theta[k];
                v[k] = momentum * v[k] + g;
                theta[k] -= lr * v[k];
            }
        }
        //! starter
        // (void)parameters, (void)gradients;
        // throw std::logic_error("task 6a: sgd::step is not written yet");
        //! end
    }

    sgd_config config;  // lr may be changed between steps

private:
    std::vector<std::vector<T>> velocities_;  // [parameter][element]
};

}  // namespace student
