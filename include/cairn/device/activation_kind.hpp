#pragma once
// Names of the activation functions, the same on every device.

namespace cairn {

enum class activation { none, relu, leaky_relu, sigmoid, tanh, gelu, gelu_tanh, silu };

inline constexpr const char* name_of(activation a) {
    constexpr const char* names[]{"none", "relu", "leaky_relu", "sigmoid", "tanh", "gelu", "gelu_tanh", "silu"};
    return names[static_cast<int>(a)];
}

}  // namespace cairn
