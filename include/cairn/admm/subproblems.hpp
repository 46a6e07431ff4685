#pragma once
// The subproblems of ADMM that have a closed form, one number or one sample at a time; the algorithms are loops over
// them (dladmm.hpp, pdadmm.hpp). c is what the layer computes, a or q what the layer behind it wants to read.
//   relu_z            min over z of (z − c)² + (a − relu z)²                      two candidates, the lower one
//   relu_z_proximal   the same + (z − z_old)²
//   output_z          min over z of CE(z, label) + ρ/2 ‖z − c‖²                   Newton, K numbers at once
//   squared_z         min over z of ½ (z − y)² + ρ/2 (z − c)²                     (y + ρ c) / (1 + ρ)
//   copy_q            min over q of ν/2 (q − relu z)² + u (p − q) + ρ/2 (p − q)²  (ν relu z + u + ρ p) / (ν + ρ)
//   line_search       min over t of ρ/2 ‖r − t A g‖² … along a gradient g         ‖g‖² / curvature, 0 where flat
// On each side of 0 the ReLU is linear: the minimum of either side, moved to its end where it lies beyond, is a
// candidate, and the better of two candidates is the global minimum of a function that is not convex.
// Newton's matrix is H = diag(p + ρ) − p pᵀ, p = softmax z. By Sherman and Morrison, with D = diag(p + ρ),
//   H⁻¹ g = D⁻¹ g + D⁻¹ p (pᵀ D⁻¹ g) / Σ pρ/(p + ρ),
// whose denominator 1 − Σ p²/(p + ρ) is written without cancellation. Steps are clipped to 2 in each number.
// Tested in tests/admm/subproblems_test.cpp against grids and numeric minimisers in double (tests/oracle/admm.hpp).

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

namespace cairn::admm {

/// See the top of the file.
template <class T>
T relu_z(T c, T a) {
    const T below = std::min(c, T{}), above = std::max((c + a) / 2, T{});
    const T cost_below = (below - c) * (below - c) + a * a,
            cost_above = (above - c) * (above - c) + (a - above) * (a - above);
    return cost_above < cost_below ? above : below;
}

/// The comparison has the proximal term too: without it a third of random cases take the wrong branch.
template <class T>
T relu_z_proximal(T c, T q, T old) {
    const auto square = [](T x) { return x * x; };
    const T below = std::min((c + old) / 2, T{}), above = std::max((c + q + old) / 3, T{});
    const T cost_below = square(below - c) + square(q) + square(below - old),
            cost_above = square(above - c) + square(q - above) + square(above - old);
    return cost_above < cost_below ? above : below;
}

template <class T>
T squared_z(T c, T y, T rho) {
    return (y + rho * c) / (1 + rho);
}

template <class T>
T copy_q(T relu_of_z, T p, T u, T nu, T rho) {
    return (nu * relu_of_z + u + rho * p) / (nu + rho);
}

/// Length of the exact step along −g: ‖g‖² / curvature, where the curvature is gᵀ H g. 0 where the function is flat
/// along g, as it is where the residual is zero already: 0/0 would be NaN.
inline double line_search(double gradient_norm2, double curvature) {
    constexpr double floor = std::numeric_limits<double>::min();
    return gradient_norm2 > floor && curvature > floor ? gradient_norm2 / curvature : 0;
}

/// p = softmax(z), K numbers. Returns log Σ exp(z).
inline double softmax_of(std::span<const double> z, std::span<double> p) {
    const double most = *std::max_element(z.begin(), z.end());
    double sum = 0;
    for (std::size_t k = 0; k < z.size(); ++k) sum += p[k] = std::exp(z[k] - most);
    for (double& v : p) v /= sum;
    return most + std::log(sum);
}

/// Replaces z (K), a first guess, by the minimiser; `work` holds 2K numbers. Returns the Newton steps that it took.
inline int output_z(std::span<const double> c, index_t label, double rho, std::span<double> z, std::span<double> work) {
    constexpr int most_steps = 60;
    constexpr double tolerance = 1e-10, most_move = 2;
    const std::size_t classes = z.size();
    const std::span<double> p = work.first(classes), g = work.subspan(classes, classes);
    for (int step = 0; step < most_steps; ++step) {
        softmax_of(z, p);
        double steepest = 0, inner = 0, denominator = 0;  // max |g|, pᵀ D⁻¹ g, Σ pρ/(p + ρ)
        for (std::size_t k = 0; k < classes; ++k) {
            g[k] = p[k] - (static_cast<index_t>(k) == label) + rho * (z[k] - c[k]);
            steepest = std::max(steepest, std::abs(g[k]));
            inner += p[k] * g[k] / (p[k] + rho);
            denominator += p[k] * rho / (p[k] + rho);
        }
        if (!(steepest > tolerance)) return step;  // NaN too: the caller looks for it
        const double common = inner / std::max(denominator, std::numeric_limits<double>::min());
        double longest = 0;
        for (std::size_t k = 0; k < classes; ++k) {
            g[k] = (g[k] + p[k] * common) / (p[k] + rho);
            longest = std::max(longest, std::abs(g[k]));
        }
        const double part = longest > most_move ? most_move / longest : 1;
        for (std::size_t k = 0; k < classes; ++k) z[k] -= part * g[k];
    }
    return most_steps;
}

}  // namespace cairn::admm
