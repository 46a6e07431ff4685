#pragma once
// Multi-layer perceptron: linear layers with an activation between them, and dropout behind it. Images are flattened
// first.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// (N, …) → (N, sizes.back()), by way of layers of sizes[1], sizes[2], … values; sizes[0] is the number of inputs.
/// `dropout_rate` of hidden values, 0: none. Throws on fewer than two sizes.
template <class T = float, Device D = cpu>
sequential<T, D> mlp(const std::vector<index_t>& sizes, activation act = activation::relu, double dropout_rate = 0) {
    require(sizes.size() >= 2, "mlp: ", sizes.size(), " sizes; inputs and outputs are needed at least");
    sequential<T, D> net;
    net.add("flatten", flatten<T, D>());
    for (std::size_t i = 1; i < sizes.size(); ++i) {
        net.add(concat("fc", i), linear<T, D>({.in = sizes[i - 1], .out = sizes[i]}));
        if (i + 1 == sizes.size()) break;
        net.add(concat(name_of(act), i), activation_layer<T, D>(act));
        if (dropout_rate > 0) net.add(concat("dropout", i), dropout<T, D>(dropout_rate));
    }
    return net;
}

CAIRN_COMPILED_NETWORK(mlp(const std::vector<index_t>&, activation, double))

}  // namespace cairn
