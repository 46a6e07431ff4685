#pragma once
// Lab 6, task 1: Adam (Kingma and Ba 2015) on any part of the parameters.
//   m ← β₁ m + (1 − β₁) g        v ← β₂ v + (1 − β₂) g²
//   θ ← θ − lr · (m / (1 − β₁ᵗ)) / (√(v / (1 − β₂ᵗ)) + ε)

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>

namespace student {

struct adam_settings {
    double lr = 0.001, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
};

/// Step number t = 1, 2, … for n elements: theta, m and v change. Compute in double, store in float; θ may be made of m
/// and v before or after they are rounded. All four spans have the same size, which may be 0.
inline void adam(const adam_settings& s, std::int64_t t, std::span<const float> gradient, std::span<float> theta,
                 std::span<float> m, std::span<float> v) {
    //! solution
    const double first = 1 - std::pow(s.beta1, static_cast<double>(t));
    const double second = 1 - std::pow(s.beta2, static_cast<double>(t));
    for (std::size_t i = 0; i < theta.size(); ++i) {
        const double g = gradient[i];
        const double mean = s.beta1 * m[i] + (1 - s.beta1) * g, square = s.beta2 * v[i] + (1 - s.beta2) * g * g;
        m[i] = static_cast<float>(mean);
        v[i] = static_cast<float>(square);
        theta[i] = static_cast<float>(theta[i] - s.lr * (mean / first) / (std::sqrt(square / second) + s.epsilon));
    }
    //! starter
    // (void)s, (void)t, (void)gradient, (void)theta, (void)m, (void)v;
    // throw std::logic_error("task 1: adam is not written yet");
    //! end
}

}  // namespace student
