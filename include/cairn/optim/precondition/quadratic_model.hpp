#pragma once
// How far to go along a preconditioned gradient (Martens and Grosse 2015, sections 6.4 and 7): the quadratic model of
// the loss
//   q(δ) = ⟨∇, δ⟩ + ½ δᵀ (F + λ I) δ        F: the exact Gauss-Newton matrix of the batch, by products with vectors
// is minimised over δ = α d₁ + μ d₂, d₁ the preconditioned gradient (α < 0), d₂ the step before: learning rate and
// momentum at once.
// A step that promises more than a quarter of the loss is shortened until it promises that: few samples leave F without
// curvature along it, and batches of 16 diverge by such steps.
// Levenberg-Marquardt: every T steps ρ = (L(θ + δ) − L(θ)) / q(δ); λ ← λ ω^T where ρ > ¾, λ ω^−T where ρ < ¼.

#include <cairn/core/error.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn {

/// The model along two directions; `f` holds dᵢᵀ (F + λ I) dⱼ.
struct quadratic_model {
    double g1 = 0, g2 = 0;  // ⟨∇, dᵢ⟩
    double f11 = 0, f12 = 0, f22 = 0;

    struct step {
        double alpha = 0, mu = 0;
        bool shortened = false;  // to what it may promise
    };

    double value(step s) const {
        return s.alpha * g1 + s.mu * g2 +
               0.5 * (s.alpha * s.alpha * f11 + 2 * s.alpha * s.mu * f12 + s.mu * s.mu * f22);
    }
    /// Where q is least. Directions that nearly coincide, or of which one is zero: along d₁ alone.
    step minimum() const {
        if (!(f11 > 0)) return {};
        const double determinant = f11 * f22 - f12 * f12;
        if (!(determinant > 1e-6 * f11 * f22)) return {-g1 / f11, 0};
        return {(f12 * g2 - f22 * g1) / determinant, (f12 * g1 - f11 * g2) / determinant};
    }
    /// Where q is least, or so much of that step that it promises at most `most` ≥ 0: c of it promise 2c − c² as much.
    step minimum_within(double most) const {
        const step s = minimum();
        const double promised = -value(s);
        if (!(promised > most)) return s;
        const double c = 1 - std::sqrt(1 - most / promised);
        return {c * s.alpha, c * s.mu, true};
    }
};

/// λ by Levenberg and Marquardt.
struct damping_rule {
    double lambda = 1;
    double omega = 0.9;
    std::int64_t every = 5;
    double least = 1e-8, most = 1e8;

    bool is_due(std::int64_t step) const { return every > 0 && step % every == 0; }
    /// The loss changed by `measured` where the model said `predicted` < 0.
    void observe(double measured, double predicted) {
        const double change = std::pow(omega, static_cast<double>(every));
        const double ratio = predicted < 0 ? measured / predicted : -1;
        if (ratio > 0.75) lambda *= change;
        if (!(ratio >= 0.25)) lambda /= change;  // NaN too
        lambda = std::clamp(lambda, least, most);
    }
};

}  // namespace cairn
