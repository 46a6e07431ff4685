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
    //! solution
    const part mine = part_of(whole.b1.size(), rank, p);
    linear_pair here{matrix(mine.count, whole.w1.cols), std::vector<double>(mine.count),
                     matrix(whole.w2.rows, mine.count), whole.b2};
    for (std::size_t j = 0; j < mine.count; ++j) {
        for (std::size_t i = 0; i < whole.w1.cols; ++i) here.w1(j, i) = whole.w1(mine.begin + j, i);
        here.b1[j] = whole.b1[mine.begin + j];
        for (std::size_t o = 0; o < whole.w2.rows; ++o) here.w2(o, j) = whole.w2(o, mine.begin + j);
    }
    return here;
    //! starter
    // (void)whole, (void)rank, (void)p;
    // throw std::logic_error("task 1: cut is not written yet");
    //! end
}

/// What forward keeps for backward on this rank.
struct saved_for_backward {
    matrix x, h;  // h: examples × hidden numbers of this rank
};

/// Task 2. y, whole, on every rank, from x, which is the same on every rank. One all-reduce, of y's numbers.
template <class C>
matrix forward(C& c, const linear_pair& mine, const matrix& x, saved_for_backward& saved) {
    //! solution
    saved = {x, matrix(x.rows, mine.w1.rows)};
    matrix y(x.rows, mine.w2.rows);
    for (std::size_t n = 0; n < x.rows; ++n) {
        for (std::size_t j = 0; j < mine.w1.rows; ++j) {
            double sum = mine.b1[j];
            for (std::size_t i = 0; i < x.cols; ++i) sum += x(n, i) * mine.w1(j, i);
            saved.h(n, j) = sum > 0 ? sum : 0;
        }
        for (std::size_t o = 0; o < y.cols; ++o)
            for (std::size_t j = 0; j < mine.w1.rows; ++j) y(n, o) += saved.h(n, j) * mine.w2(o, j);
    }
    cairn::ring_all_reduce(c, std::span<double>(y.values));
    for (std::size_t n = 0; n < y.rows; ++n)
        for (std::size_t o = 0; o < y.cols; ++o) y(n, o) += mine.b2[o];
    return y;
    //! starter
    // (void)c, (void)mine, (void)x, (void)saved;
    // throw std::logic_error("task 2: forward is not written yet");
    //! end
}

/// Task 2. From dy, the same on every rank: dx, whole, on every rank, and the gradients of this rank's weights, in
/// `gradient`, which is empty before and gets its sizes here; b₂'s is the same on every rank. One all-reduce, of dx's
/// numbers. dh is 0 where h is 0.
template <class C>
matrix backward(C& c, const linear_pair& mine, const saved_for_backward& saved, const matrix& dy,
                linear_pair& gradient) {
    //! solution
    const matrix &x = saved.x, &h = saved.h;
    gradient = {matrix(mine.w1.rows, mine.w1.cols), std::vector<double>(mine.b1.size()),
                matrix(mine.w2.rows, mine.w2.cols), std::vector<double>(mine.b2.size())};
    matrix dx(x.rows, x.cols);
    for (std::size_t n = 0; n < x.rows; ++n) {
        for (std::size_t o = 0; o < dy.cols; ++o) {
            gradient.b2[o] += dy(n, o);
            for (std::size_t j = 0; j < h.cols; ++j) gradient.w2(o, j) += dy(n, o) * h(n, j);
        }
        for (std::size_t j = 0; j < h.cols; ++j) {
            if (!(h(n, j) > 0)) continue;
            double dh = 0;
            for (std::size_t o = 0; o < dy.cols; ++o) dh += dy(n, o) * mine.w2(o, j);
            gradient.b1[j] += dh;
            for (std::size_t i = 0; i < x.cols; ++i) {
                gradient.w1(j, i) += dh * x(n, i);
                dx(n, i) += dh * mine.w1(j, i);
            }
        }
    }
    cairn::ring_all_reduce(c, std::span<double>(dx.values));
    return dx;
    //! starter
    // (void)c, (void)mine, (void)saved, (void)dy, (void)gradient;
    // throw std::logic_error("task 2: backward is not written yet");
    //! end
}

}  // namespace student
