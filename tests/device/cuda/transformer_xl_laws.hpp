#pragma once
// Transformer-XL on a grid device: the kernels' numbers and a training on a running text are the host's. Included after
// the device's products.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/grid/activation.hpp>
#include <cairn/device/grid/dropout.hpp>
#include <cairn/device/grid/relative_attention.hpp>
#include <cairn/models/transformer_xl.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>

namespace cairn::transformer_xl_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;

/// y, lse and the four gradients, on the host.
template <class D>
std::vector<tensor<double>> attention(const relative_attention_geometry& g) {
    const index_t w = g.width();
    const auto here = [](shape s, std::uint32_t seed) { return tensor<double, D>::copy_of(drawn<double>(s, seed)); };
    const auto qu = here({g.batch, g.length, w}, 1), qv = here({g.batch, g.length, w}, 2),
               kv = here({g.batch, g.keys(), 2 * w}, 3), r = here({g.keys(), w}, 4), dy = here(qu.shape(), 5);
    tensor<double, D> y(qu.shape()), lse({g.batch, g.heads, g.length}), dqu(qu.shape()), dqv(qu.shape()),
        dkv(kv.shape()), dr({g.batch, g.keys(), w});
    relative_attention_forward(D{}, g, qu.data(), qv.data(), kv.data(), r.data(), y.data(), lse.data());
    relative_attention_backward(D{}, g, qu.data(), qv.data(), kv.data(), r.data(), y.data(), lse.data(), dy.data(),
                                dqu.data(), dqv.data(), dkv.data(), dr.data());
    std::vector<tensor<double>> all;
    for (const auto* t : {&y, &lse, &dqu, &dqv, &dkv, &dr}) all.push_back(t->on_host());
    return all;
}

template <class D>
void kernels() {
    for (const relative_attention_geometry g :
         {relative_attention_geometry{.batch = 2, .length = 5, .memory = 7, .begin = 3, .heads = 2, .head_dim = 3},
          relative_attention_geometry{.batch = 1, .length = 30, .memory = 4, .heads = 1, .head_dim = 8},
          relative_attention_geometry{.batch = 1, .length = 3, .heads = 3, .head_dim = 2}}) {
        CAPTURE(g.length, g.memory, g.begin);
        const auto host = attention<cpu>(g), device = attention<D>(g);
        for (std::size_t i = 0; i < host.size(); ++i) {
            CAPTURE(i);
            check_close(device[i], host[i], 1e-10);
        }
    }
}

/// Losses of four segments and the parameters after them. C: what layers compute in; weights are of T.
template <class D, class T, class C = T>
std::pair<std::vector<double>, std::vector<tensor<T>>> train() {
    constexpr index_t batch = 2, length = 7, vocabulary = 11;
    auto net =
        transformer_xl<C, D>({.vocab_size = vocabulary, .embedding_dim = 8, .heads = 2, .blocks = 2, .dropout = 0.1});
    arena<T, D> weights(net.parameters(), 3);
    bound_optimizer<adam, T, D> optimizer(adam{{.eps = 1e-3}}, weights);  // no direction hangs on a gradient near zero
    stream_memory<T, D> memory(10, {0, batch});
    std::vector<double> losses;
    for (std::uint32_t step = 0; step < 4; ++step) {
        tensor<T> ids({batch, length});
        tensor<std::int32_t> labels({batch, length});
        for (index_t i = 0; i < ids.size(); ++i) {
            ids[i] = static_cast<T>((i * 7 + static_cast<index_t>(step)) % vocabulary);
            labels[i] = static_cast<std::int32_t>((i * 5) % vocabulary);
        }
        saved_tensors<C, D> saved;
        pass_context p{.random = {.seed = 5, .step = step}, .input_gradient = false};
        p.memory = &memory;
        auto y = cast<T>(net.forward(cast<C>(tensor<T, D>::copy_of(ids)), saved, p));
        auto [loss, dy] = cross_entropy{}(std::move(y), tensor<std::int32_t, D>::copy_of(labels));
        losses.push_back(loss);
        weights.zero_grad();
        net.backward(cast<C>(std::move(dy)), saved, p);
        optimizer.step(1e-2);
        memory.advance(length);
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

}  // namespace cairn::transformer_xl_laws
