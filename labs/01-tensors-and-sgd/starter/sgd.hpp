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
        (void)parameters, (void)gradients;
        throw std::logic_error("task 6a: sgd::step is not written yet");
    }

    sgd_config config;  // lr may be changed between steps

private:
    std::vector<std::vector<T>> velocities_;  // [parameter][element]
};

}  // namespace student
