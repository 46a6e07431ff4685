#pragma once
// Lab 7, tasks 1 and 2: two linear layers with a ReLU between them, cut over p ranks as Megatron-LM cuts them.
//   h = max(0, x W₁ᵀ + b₁)      x: examples × in,  W₁: hidden × in,   b₁: hidden
//   y = h W₂ᵀ + b₂              W₂: out × hidden,  b₂: out,           y: examples × out

#include "arrays.hpp"

#include <stdexcept>
#include <vector>

namespace student {

/// The weights of both layers, whole or of one rank; gradients have the same form.
struct linear_pair {
    matrix w1;
    std::vector<double> b1;
    matrix w2;
    std::vector<double> b2;
};

/// Task 1. What rank `rank` of p has: of the hidden numbers, part_of(hidden, rank, p), and what belongs to them: their
/// rows of W₁ and numbers of b₁, their columns of W₂. b₂ is the same, whole, on every rank. Also for p > hidden.
inline linear_pair cut(const linear_pair& whole, int rank, int p) {
    (void)whole, (void)rank, (void)p;
    throw std::logic_error("task 1: cut is not written yet");
}

/// What forward keeps for backward on this rank.
struct saved_for_backward {
    matrix x, h;  // h: examples × hidden numbers of this rank
};

/// Task 2. y, whole, on every rank, from x, which is the same on every rank. One all-reduce, of y's numbers.
template <class C>
matrix forward(C& c, const linear_pair& mine, const matrix& x, saved_for_backward& saved) {
    (void)c, (void)mine, (void)x, (void)saved;
    throw std::logic_error("task 2: forward is not written yet");
}

/// Task 2. From dy, the same on every rank: dx, whole, on every rank, and the gradients of this rank's weights, in
/// `gradient`, which is empty before and gets its sizes here; b₂'s is the same on every rank. One all-reduce, of dx's
/// numbers. dh is 0 where h is 0.
template <class C>
matrix backward(C& c, const linear_pair& mine, const saved_for_backward& saved, const matrix& dy,
                linear_pair& gradient) {
    (void)c, (void)mine, (void)saved, (void)dy, (void)gradient;
    throw std::logic_error("task 2: backward is not written yet");
}

}  // namespace student
