#pragma once
// Transformer-XL on a grid device: the kernels' numbers and a training on a running text are the host's. Included after
// the device's products.

#include "device/cuda/transformer_laws.hpp"

#include <cairn/device/grid/relative_attention.hpp>
#include <cairn/models/transformer_xl.hpp>

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

/// Four segments of a running text.
template <class D, class T, class C = T>
transformer_laws::trained<T> train() {
    using namespace transformer_laws;
    constexpr index_t length = 7;
    stream_memory<T, D> memory(10, {0, batch});
    return train_steps<T>(
        transformer_xl<C, D>({.vocab_size = vocabulary, .embedding_dim = 8, .heads = 2, .blocks = 2, .dropout = 0.1}),
        4, length, [&](pass_context& p) { p.memory = &memory; }, [&] { memory.advance(length); });
}

template <class D, class T, class C = T>
void trains() {
    transformer_laws::check_trained<C>(train<cpu, T>(), train<D, T, C>(), train<D, T, C>());
}

}  // namespace cairn::transformer_xl_laws
