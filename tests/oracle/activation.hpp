#pragma once
// Activation functions and their derivatives in long double, from the C library: the definitions that the kernels are
// compared with.

#include <cairn/device/activation_kind.hpp>

#include <cmath>
#include <numbers>

namespace oracle {

using real = long double;

inline real activation(cairn::activation a, real x, real slope) {
    constexpr real root_half = std::numbers::sqrt2_v<real> / 2;
    switch (a) {
        case cairn::activation::none:
            return x;
        case cairn::activation::relu:
            return x > 0 ? x : 0;
        case cairn::activation::leaky_relu:
            return x > 0 ? x : slope * x;
        case cairn::activation::sigmoid:
            return 1 / (1 + std::exp(-x));
        case cairn::activation::tanh:
            return std::tanh(x);
        case cairn::activation::silu:
            return x / (1 + std::exp(-x));
        case cairn::activation::gelu:
            return x * std::erfc(-x * root_half) / 2;
        case cairn::activation::gelu_tanh:
            return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi_v<real>) * (x + 0.044715L * x * x * x)));
    }
    return 0;
}

inline real activation_derivative(cairn::activation a, real x, real slope) {
    constexpr real root_half = std::numbers::sqrt2_v<real> / 2;
    const real s = 1 / (1 + std::exp(-x));
    switch (a) {
        case cairn::activation::none:
            return 1;
        case cairn::activation::relu:
            return x > 0 ? 1 : 0;
        case cairn::activation::leaky_relu:
            return x > 0 ? 1 : slope;
        case cairn::activation::sigmoid:
            return s * (1 - s);
        case cairn::activation::tanh:
            return 1 - std::tanh(x) * std::tanh(x);
        case cairn::activation::silu:
            return s + x * s * (1 - s);
        case cairn::activation::gelu:
            return std::erfc(-x * root_half) / 2 + x * std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<real>);
        case cairn::activation::gelu_tanh: {
            const real k = std::sqrt(2 / std::numbers::pi_v<real>), t = std::tanh(k * (x + 0.044715L * x * x * x));
            return (1 + t) / 2 + x / 2 * (1 - t * t) * k * (1 + 3 * 0.044715L * x * x);
        }
    }
    return 0;
}

}  // namespace oracle
