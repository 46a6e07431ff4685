#pragma once
// Lab 1, task 5: is a gradient right? Asked of the function itself, in double.
//
//   (f(θ + h e_i) − f(θ − h e_i)) / 2h  =  ∂f/∂θ_i + h²/6 ∂³f/∂θ_i³ + …  ± ε |f| / h        ε = 2⁻⁵²
//
// f takes a std::span<const double> and gives a double: f(std::span<const double>(values)).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// Task 5a. Central differences with a step of ∛ε max(1, |θ_i|), where the two terms of the error are about equal.
/// Calls f twice for each parameter, and no more.
template <class F>
std::vector<double> numerical_gradient(F&& f, std::span<const double> theta) {
    //! solution
    const double step = std::cbrt(std::numeric_limits<double>::epsilon());
    std::vector<double> at(theta.begin(), theta.end()), gradient(theta.size());
    for (std::size_t i = 0; i < theta.size(); ++i) {
        const double h = step * std::max(1.0, std::abs(theta[i]));
        const double high = theta[i] + h, low = theta[i] - h;  // their distance is not quite 2h: numbers are rounded
        at[i] = high;
        const double above = f(std::span<const double>(at));
        at[i] = low;
        const double below = f(std::span<const double>(at));
        at[i] = theta[i];
        gradient[i] = (above - below) / (high - low);
    }
    return gradient;
    //! starter
    // (void)f, (void)theta;
    // throw std::logic_error("task 5a: numerical_gradient is not written yet");
    //! end
}

struct gradient_verdict {
    bool right = false;
    // the parameter with the largest error in units of what is allowed, or one whose error is not finite
    std::size_t worst = 0;
};

/// Task 5b. Right, where for every i  |g_i − n_i| ≤ 1e-6 max(|g_i|, |n_i|) + 1e-8 |f(θ)|,  n being the numerical
/// gradient; wrong where anything is not finite. Throws std::invalid_argument where gradient and theta have different
/// sizes.
template <class F>
gradient_verdict check_gradient(F&& f, std::span<const double> theta, std::span<const double> gradient) {
    //! solution
    if (theta.size() != gradient.size()) throw std::invalid_argument("check_gradient: one number for each parameter");
    const std::vector<double> numerical = numerical_gradient(f, theta);
    const double floor = 1e-8 * std::abs(f(theta));
    gradient_verdict verdict{true, 0};
    double largest = 0;
    for (std::size_t i = 0; i < theta.size(); ++i) {
        const double g = gradient[i], n = numerical[i], error = std::abs(g - n);
        const double allowed = 1e-6 * std::max(std::abs(g), std::abs(n)) + floor;
        if (!std::isfinite(error) || !std::isfinite(allowed)) return {false, i};
        if (!(error <= allowed)) verdict.right = false;
        if (error > largest * allowed) largest = error / allowed, verdict.worst = i;
    }
    return verdict;
    //! starter
    // (void)f, (void)theta, (void)gradient;
    // throw std::logic_error("task 5b: check_gradient is not written yet");
    //! end
}

}  // namespace student
