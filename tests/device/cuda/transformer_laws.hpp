#pragma once
// A transformer on a grid device: the same training as on the host, from the same seed. Included after the device's
// products.

#include "device/cuda/attention_laws.hpp"

#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>

namespace cairn::transformer_laws {

using kernel_laws::check_close;

/// Losses of three steps and the parameters after them. C: what layers compute in; weights are of T.
template <class D, class T, class C = T>
std::pair<std::vector<double>, std::vector<tensor<T>>> train() {
    constexpr index_t batch = 2, length = 9, vocabulary = 11;
    auto net = transformer<C, D>({.vocab_size = vocabulary,
                                  .max_length = 12,
                                  .embedding_dim = 8,
                                  .heads = 2,
                                  .blocks = 2,
                                  .dropout = 0.1,
                                  .attention_dropout = 0.1});
    arena<T, D> weights(net.parameters(), 3);
    bound_optimizer<adam, T, D> optimizer(adam{{.eps = 1e-3}}, weights);  // no direction hangs on a gradient near zero
    std::vector<double> losses;
    for (std::uint32_t step = 0; step < 3; ++step) {
        tensor<T> ids({batch, length});
        tensor<std::int32_t> labels({batch, length});
        for (index_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<T>((i * 7 + static_cast<index_t>(step)) % vocabulary);
            labels[i] = static_cast<std::int32_t>((i * 5) % vocabulary);
        }
        saved_tensors<C, D> saved;
        const pass_context p{.random = {.seed = 5, .step = step}, .input_gradient = false};
        auto y = cast<T>(net.forward(cast<C>(tensor<T, D>::copy_of(ids)), saved, p));
        auto [loss, dy] = cross_entropy{}(std::move(y), tensor<std::int32_t, D>::copy_of(labels));
        losses.push_back(loss);
        weights.zero_grad();
        net.backward(cast<C>(std::move(dy)), saved, p);
        optimizer.step(1e-2);
    }
    std::vector<tensor<T>> state;
    for (const auto& [name, p] : weights.parameters()) state.push_back(p->value.on_host());
    return {std::move(losses), std::move(state)};
}

/// The host's training to rounding, and the device's own again to the bit.
template <class D, class T, class C = T>
void trains() {
    const double tolerance = std::is_same_v<C, bfloat16> ? 0.15 : std::is_same_v<T, double> ? 1e-8 : 2e-3;
    const auto host = train<cpu, T>(), device = train<D, T, C>(), again = train<D, T, C>();
    for (std::size_t s = 0; s < host.first.size(); ++s) CHECK(std::abs(host.first[s] - device.first[s]) < tolerance);
    CHECK(again.first == device.first);
    REQUIRE(host.second.size() == device.second.size());
    for (std::size_t i = 0; i < host.second.size(); ++i) {
        CAPTURE(i);
        check_close(device.second[i], host.second[i], tolerance);
        check_close(again.second[i], device.second[i], 0);
    }
}

}  // namespace cairn::transformer_laws
