#pragma once
// Lab 1, task 3: a linear layer and ReLU, forward and backward.
//
//   y = x Wᵀ + b      x (batch, in), W (out, in), b (out), y (batch, out): as in PyTorch and in this library
//   dx = dy W         dy (batch, out): the gradient of the loss with respect to y; dx, dW and db likewise
//   dW = dyᵀ x
//   db = column sums of dy

#include "tensors.hpp"

#include <cstddef>
#include <span>
#include <stdexcept>

namespace student {

/// Task 3a. Throws std::invalid_argument unless the shapes fit. The batch may be empty.
template <class T>
matrix<T> linear_forward(const matrix<T>& x, const matrix<T>& w, const vec<T>& b) {
    (void)x, (void)w, (void)b;
    throw std::logic_error("task 3a: linear_forward is not written yet");
}

template <class T>
struct linear_gradients {
    matrix<T> x;  // dx (batch, in)
    matrix<T> w;  // dW (out, in)
    vec<T> b;     // db (out)
};

/// Task 3b. Sums over the batch, no means: the loss has taken its mean already. Throws std::invalid_argument unless the
/// shapes fit.
template <class T>
linear_gradients<T> linear_backward(const matrix<T>& x, const matrix<T>& w, const matrix<T>& dy) {
    (void)x, (void)w, (void)dy;
    throw std::logic_error("task 3b: linear_backward is not written yet");
}

/// Task 3c. max(x, 0).
template <class T>
matrix<T> relu(const matrix<T>& x) {
    (void)x;
    throw std::logic_error("task 3c: relu is not written yet");
}

/// Task 3c. dy where x > 0, else 0; x is what relu was given.
template <class T>
matrix<T> relu_backward(const matrix<T>& x, const matrix<T>& dy) {
    (void)x, (void)dy;
    throw std::logic_error("task 3c: relu_backward is not written yet");
}

}  // namespace student
