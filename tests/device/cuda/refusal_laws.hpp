#pragma once
// Input that kernels of every grid device refuse, in the host's words.

#include "device/cuda/law_numbers.hpp"

#include <string>

namespace cairn::refusal_laws {

using namespace kernel_laws;

template <class Action>
std::string refusal(Action&& action) {
    try {
        action();
    } catch (const error& e) {
        return e.what();
    }
    return {};
}

/// action(D{}) and action(cpu{}) throw the same, and say this.
template <class D, class Action>
void same_refusal(const char* says, Action&& action) {
    const std::string host = refusal([&] { action(cpu{}); }), device = refusal([&] { action(D{}); });
    CHECK(device == host);
    CHECK_THAT(device, Catch::Contains(says));
}

template <class D>
void arguments() {
    const auto numbers = [](auto device, std::uint32_t stream) {
        return tensor<float, decltype(device)>::copy_of(drawn<float>({8}, stream));
    };
    for (const activation act : {activation::none, activation::relu, activation::leaky_relu}) {
        const std::string says = concat("activation: ", name_of(act), " is not a smooth function");
        same_refusal<D>(says.c_str(), [&](auto d) {
            auto x = numbers(d, 1);
            activation_forward(d, act, 8, x.data(), x.data());
        });
        same_refusal<D>(says.c_str(), [&](auto d) {
            auto x = numbers(d, 1);
            activation_backward(d, act, 8, x.data(), x.data(), x.data());
        });
    }
    for (const activation act : {activation::gelu, activation::sigmoid, activation::tanh}) {
        same_refusal<D>("cannot be fused", [&](auto d) {
            auto x = numbers(d, 1);
            const auto v = numbers(d, 2);
            batch_norm_apply(d, 1, 8, x.data(), static_cast<const float*>(nullptr), v.data(), v.data(), v.data(),
                             v.data(), act, 0.0f, x.data(), nullptr);
        });
        same_refusal<D>("cannot be fused", [&](auto d) {
            const auto v = numbers(d, 2);
            auto a = numbers(d, 3), b = numbers(d, 4);
            const tensor<std::uint8_t, decltype(d)> bits({simd::mask_bytes<float>(8)});
            batch_norm_sums(d, 1, 8, v.data(), bits.data(), act, 0.0f, v.data(), v.data(), v.data(), a.data(),
                            b.data());
        });
        same_refusal<D>("cannot be fused", [&](auto d) {
            const auto v = numbers(d, 2);
            auto dx = numbers(d, 3);
            const tensor<std::uint8_t, decltype(d)> bits({simd::mask_bytes<float>(8)});
            batch_norm_gradient(d, 1, 8, v.data(), bits.data(), act, 0.0f, v.data(), v.data(), v.data(), v.data(),
                                v.data(), v.data(), dx.data(), static_cast<float*>(nullptr));
        });
    }
    for (const double rate : {1.0, -0.1, 1.5})
        same_refusal<D>("is not in [0, 1)", [&](auto d) {
            auto x = numbers(d, 1);
            dropout_apply(d, 8, rate, random_stream{1, 2, 3}, x.data(), x.data());
        });
    for (const float smoothing : {1.5f, -0.25f})
        same_refusal<D>("cross-entropy: label smoothing", [&](auto d) {
            auto x = numbers(d, 1), loss = numbers(d, 2);
            const auto labels = tensor<std::int32_t, decltype(d)>::zeros({2});
            softmax_cross_entropy(d, 2, 4, x.data(), labels.data(), smoothing, loss.data(), x.data(), 1.0f);
        });
    same_refusal<D>("tensors of different size", [&](auto d) {
        auto x = numbers(d, 1);
        tensor<float, decltype(d)> shorter({7});
        for_each(functors::add{}, x, shorter);
    });
}

template <GridDevice D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"arguments", arguments<D>}};
    return laws;
}

}  // namespace cairn::refusal_laws
