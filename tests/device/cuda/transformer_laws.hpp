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

/// Losses of a training and the parameters after it.
template <class T>
using trained = std::pair<std::vector<double>, std::vector<tensor<T>>>;

constexpr index_t batch = 2, vocabulary = 11;

/// Trains on `steps` texts of so many tokens. C: what layers compute in; weights are of T. before(pass) and after() are
/// called around a step.
template <class T, class C, class D, class Before, class After>
trained<T> train_steps(sequential<C, D> net, std::uint32_t steps, index_t length, Before&& before, After&& after) {
    arena<T, D> weights(net.parameters(), 3);
    bound_optimizer<adam, T, D> optimizer(adam{{.eps = 1e-3}}, weights);  // no direction hangs on a gradient near zero
    std::vector<double> losses;
    for (std::uint32_t step = 0; step < steps; ++step) {
        tensor<T> ids({batch, length});
        tensor<std::int32_t> labels({batch, length});
        for (index_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<T>((i * 7 + static_cast<index_t>(step)) % vocabulary);
            labels[i] = static_cast<std::int32_t>((i * 5) % vocabulary);
        }
        saved_tensors<C, D> saved;
        pass_context p{.random = {.seed = 5, .step = step}, .input_gradient = false};
        before(p);
        auto y = cast<T>(net.forward(cast<C>(tensor<T, D>::copy_of(ids)), saved, p));
        auto [loss, dy] = cross_entropy{}(std::move(y), tensor<std::int32_t, D>::copy_of(labels));
        losses.push_back(loss);
        weights.zero_grad();
        net.backward(cast<C>(std::move(dy)), saved, p);
        optimizer.step(1e-2);
        after();
    }
    std::vector<tensor<T>> state;
    for (const auto& [name, p] : weights.parameters()) state.push_back(p->value.on_host());
    return {std::move(losses), std::move(state)};
}

/// The host's training to rounding, and the device's own again to the bit.
template <class C, class T>
void check_trained(const trained<T>& host, const trained<T>& device, const trained<T>& again) {
    const double tolerance = std::is_same_v<C, bfloat16> ? 0.15 : std::is_same_v<T, double> ? 1e-8 : 2e-3;
    for (std::size_t s = 0; s < host.first.size(); ++s) CHECK(std::abs(host.first[s] - device.first[s]) < tolerance);
    CHECK(again.first == device.first);
    REQUIRE(host.second.size() == device.second.size());
    for (std::size_t i = 0; i < host.second.size(); ++i) {
        CAPTURE(i);
        check_close(device.second[i], host.second[i], tolerance);
        check_close(again.second[i], device.second[i], 0);
    }
}

/// Three steps.
template <class D, class T, class C = T>
trained<T> train() {
    return train_steps<T>(
        transformer<C, D>({.vocab_size = vocabulary,
                           .max_length = 12,
                           .embedding_dim = 8,
                           .heads = 2,
                           .blocks = 2,
                           .dropout = 0.1,
                           .attention_dropout = 0.1}),
        3, 9, [](pass_context&) {}, [] {});
}

template <class D, class T, class C = T>
void trains() {
    check_trained<C>(train<cpu, T>(), train<D, T, C>(), train<D, T, C>());
}

}  // namespace cairn::transformer_laws
