#pragma once
// Lab 4, tasks 2 and 3: V = F⁻¹ ∇W for one layer's curvature F = A ⊗ G, damped; then the length of the step.
// ∇W and V are matrices (out, in + 1), as W is: F⁻¹ applied to such a matrix is G⁻¹ ∇W A⁻¹.

#include "matrix.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <vector>

namespace student {

/// Task 2, exact in γ: V = (A ⊗ G + γ I)⁻¹ ∇W, from the eigenvectors and eigenvalues of both factors.
inline matrix precondition(const eigen& a, const eigen& g, double damping, const matrix& gradient) {
    (void)a, (void)g, (void)damping, (void)gradient;
    throw std::logic_error("task 2: precondition by eigenvectors is not written yet");
}

/// Two damped inverses.
struct inverses {
    matrix a, g;
};

/// π = √( (tr A / rows of A) / (tr G / rows of G) ), or 1 where one of the traces is 0.
inline double pi_of(const matrix& a, const matrix& g) {
    (void)a, (void)g;
    throw std::logic_error("task 2: pi_of is not written yet");
}

/// Task 2, with γ split over the factors in the ratio of their sizes: (A + π √γ I)⁻¹ and (G + √γ / π I)⁻¹.
inline inverses damped_inverses(const matrix& a, const matrix& g, double damping) {
    (void)a, (void)g, (void)damping;
    throw std::logic_error("task 2: damped_inverses is not written yet");
}

/// Task 2: V from the two inverses.
inline matrix precondition(const inverses& damped, const matrix& gradient) {
    (void)damped, (void)gradient;
    throw std::logic_error("task 2: precondition by inverses is not written yet");
}

/// Task 3: ν = min(1, √( κ / (lr² Σ ⟨V, ∇W⟩) )), the sum over all layers: how much of the step −lr V is taken, one
/// number for all of them.
/// `clip`: κ. 1 where the sum is not positive.
inline double clip_scale(const std::vector<matrix>& directions, const std::vector<matrix>& gradients, double lr,
                         double clip) {
    (void)directions, (void)gradients, (void)lr, (void)clip;
    throw std::logic_error("task 3: clip_scale is not written yet");
}

}  // namespace student
