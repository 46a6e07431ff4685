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
    //! solution
    matrix v = multiply(multiply(transposed(g.vectors), gradient), a.vectors);
    for (std::size_t r = 0; r < v.rows; ++r)
        for (std::size_t c = 0; c < v.cols; ++c) v(r, c) /= g.values[r] * a.values[c] + damping;
    return multiply(multiply(g.vectors, v), transposed(a.vectors));
    //! starter
    // (void)a, (void)g, (void)damping, (void)gradient;
    // throw std::logic_error("task 2: precondition by eigenvectors is not written yet");
    //! end
}

/// Two damped inverses.
struct inverses {
    matrix a, g;
};

/// π = √( (tr A / rows of A) / (tr G / rows of G) ), or 1 where one of the traces is 0.
inline double pi_of(const matrix& a, const matrix& g) {
    //! solution
    const auto mean_diagonal = [](const matrix& m) {
        double sum = 0;
        for (std::size_t i = 0; i < m.rows; ++i) sum += m(i, i);
        return sum / static_cast<double>(m.rows);
    };
    const double of_a = mean_diagonal(a), of_g = mean_diagonal(g);
    return of_a > 0 && of_g > 0 ? std::sqrt(of_a / of_g) : 1;
    //! starter
    // (void)a, (void)g;
    // throw std::logic_error("task 2: pi_of is not written yet");
    //! end
}

/// Task 2, with γ split over the factors in the ratio of their sizes: (A + π √γ I)⁻¹ and (G + √γ / π I)⁻¹.
inline inverses damped_inverses(const matrix& a, const matrix& g, double damping) {
    //! solution
    const double root = std::sqrt(damping), pi = pi_of(a, g);
    inverses damped{a, g};
    for (std::size_t i = 0; i < a.rows; ++i) damped.a(i, i) += pi * root;
    for (std::size_t i = 0; i < g.rows; ++i) damped.g(i, i) += root / pi;
    return {inverse_of(damped.a), inverse_of(damped.g)};
    //! starter
    // (void)a, (void)g, (void)damping;
    // throw std::logic_error("task 2: damped_inverses is not written yet");
    //! end
}

/// Task 2: V from the two inverses.
inline matrix precondition(const inverses& damped, const matrix& gradient) {
    //! solution
    return multiply(multiply(damped.g, gradient), damped.a);
    //! starter
    // (void)damped, (void)gradient;
    // throw std::logic_error("task 2: precondition by inverses is not written yet");
    //! end
}

/// Task 3: ν = min(1, √( κ / (lr² Σ ⟨V, ∇W⟩) )), the sum over all layers: how much of the step −lr V is taken, one
/// number for all of them.
/// `clip`: κ. 1 where the sum is not positive.
inline double clip_scale(const std::vector<matrix>& directions, const std::vector<matrix>& gradients, double lr,
                         double clip) {
    //! solution
    double sum = 0;
    for (std::size_t l = 0; l < directions.size(); ++l)
        for (std::size_t i = 0; i < directions[l].values.size(); ++i)
            sum += directions[l].values[i] * gradients[l].values[i];
    return sum > 0 ? std::min(1.0, std::sqrt(clip / (lr * lr * sum))) : 1.0;
    //! starter
    // (void)directions, (void)gradients, (void)lr, (void)clip;
    // throw std::logic_error("task 3: clip_scale is not written yet");
    //! end
}

}  // namespace student
