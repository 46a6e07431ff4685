#pragma once
// Lab 4, task 1: the two Kronecker factors of a linear layer y = W ā, where ā is the layer's input a with a 1 behind
// it, for the bias.
//   A = E[ā āᵀ]   (in + 1, in + 1)        G = E[g gᵀ]   (out, out)        g: gradient of one example's loss over y

#include "matrix.hpp"

#include <stdexcept>

namespace student {

/// What a batch of n examples leaves at one layer.
struct curvature_samples {
    matrix x;   // (n, in): inputs
    matrix dy;  // (n, out): gradients over the outputs of the loss of the batch, which is the mean over its n examples
};

/// Sums over a batch: they can be added to those of another batch, or of another rank.
struct factor_sums {
    matrix a;  // (in + 1, in + 1): Σ ā āᵀ
    matrix g;  // (out, out): Σ g gᵀ
    double examples = 0;
};

/// The gradient of the batch's loss over W: Σ dy āᵀ, (out, in + 1). The last column is the bias's.
inline matrix gradient_of(const curvature_samples& rows) {
    //! solution
    const std::size_t in = rows.x.cols, out = rows.dy.cols;
    matrix gradient(out, in + 1);
    for (std::size_t i = 0; i < rows.x.rows; ++i)
        for (std::size_t o = 0; o < out; ++o) {
            for (std::size_t c = 0; c < in; ++c) gradient(o, c) += rows.dy(i, o) * rows.x(i, c);
            gradient(o, in) += rows.dy(i, o);
        }
    return gradient;
    //! starter
    // (void)rows;
    // throw std::logic_error("task 1: gradient_of is not written yet");
    //! end
}

/// Sums of the outer products of a batch's rows.
inline factor_sums sums_of(const curvature_samples& rows) {
    //! solution
    const std::size_t n = rows.x.rows, in = rows.x.cols, out = rows.dy.cols;
    factor_sums sums{matrix(in + 1, in + 1), matrix(out, out), static_cast<double>(n)};
    std::vector<double> input(in + 1, 1.0), gradient(out);
    for (std::size_t i = 0; i < n; ++i) {
        for (std::size_t c = 0; c < in; ++c) input[c] = rows.x(i, c);
        for (std::size_t o = 0; o < out; ++o) gradient[o] = sums.examples * rows.dy(i, o);  // of one example's loss
        for (std::size_t r = 0; r <= in; ++r)
            for (std::size_t c = 0; c <= in; ++c) sums.a(r, c) += input[r] * input[c];
        for (std::size_t r = 0; r < out; ++r)
            for (std::size_t c = 0; c < out; ++c) sums.g(r, c) += gradient[r] * gradient[c];
    }
    return sums;
    //! starter
    // (void)rows;
    // throw std::logic_error("task 1: sums_of is not written yet");
    //! end
}

/// A and G of one layer as running averages over batches, the last one counting most: with w = 0 before the first
/// batch,
///   w ← ρ w + 1,   F ← F + (F_batch − F) / w,   F_batch = sum / examples
/// so that the first batch gives F = F_batch.
struct running_factors {
    double decay = 0.95;  // ρ
    double weight = 0;    // w
    matrix a, g;          // of no size before the first batch

    void take(const factor_sums& batch) {
        //! solution
        weight = decay * weight + 1;
        const auto average = [&](matrix& mean, const matrix& sum) {
            if (mean.values.empty()) mean = matrix(sum.rows, sum.cols);
            for (std::size_t i = 0; i < sum.values.size(); ++i)
                mean.values[i] += (sum.values[i] / batch.examples - mean.values[i]) / weight;
        };
        average(a, batch.a);
        average(g, batch.g);
        //! starter
        // (void)batch;
        // throw std::logic_error("task 1: running_factors::take is not written yet");
        //! end
    }
};

}  // namespace student
