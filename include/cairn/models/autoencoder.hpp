#pragma once
// Deep autoencoder (Hinton and Salakhutdinov, Science 2006; with ReLU as in Martens and Grosse 2015):
// 784-1000-500-250-30 and back. The code is linear. The output is logits: the sigmoid belongs to the loss.

#include <cairn/core/compiled.hpp>
#include <cairn/models/mlp.hpp>

namespace cairn {

/// (N, …) of widths[0] values → (N, widths[0]) logits. Layers "encoder1" … and "decoder1" …
template <class T = float, Device D = cpu>
sequential<T, D> autoencoder(const std::vector<index_t>& widths = {784, 1000, 500, 250, 30}) {
    require(widths.size() >= 2, "autoencoder: ", widths.size(), " widths; input and code are needed at least");
    sequential<T, D> net;
    net.add("flatten", flatten<T, D>());
    const std::size_t levels = widths.size() - 1;
    for (std::size_t i = 1; i <= levels; ++i) {
        net.add(concat("encoder", i), linear<T, D>({.in = widths[i - 1], .out = widths[i]}));
        if (i < levels) net.add(concat("encoder", i, "_relu"), relu<T, D>());
    }
    for (std::size_t i = 1; i <= levels; ++i) {
        net.add(concat("decoder", i), linear<T, D>({.in = widths[levels - i + 1], .out = widths[levels - i]}));
        if (i < levels) net.add(concat("decoder", i, "_relu"), relu<T, D>());
    }
    return net;
}

CAIRN_COMPILED_NETWORK(autoencoder(const std::vector<index_t>&))

}  // namespace cairn
