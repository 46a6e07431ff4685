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
    (void)rows;
    throw std::logic_error("task 1: gradient_of is not written yet");
}

/// Sums of the outer products of a batch's rows.
inline factor_sums sums_of(const curvature_samples& rows) {
    (void)rows;
    throw std::logic_error("task 1: sums_of is not written yet");
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
        (void)batch;
        throw std::logic_error("task 1: running_factors::take is not written yet");
    }
};

}  // namespace student
