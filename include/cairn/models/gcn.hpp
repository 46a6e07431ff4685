#pragma once
// Graph convolutional network (Kipf and Welling, ICLR 2017): classes of a graph's nodes.
//   dropout → graph conv to `hidden` → ReLU → dropout → graph conv to the classes,   more hidden layers where asked for
// Weight decay takes the first layer's weight alone, as there.

#include <cairn/nn/activation.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/graph_conv.hpp>
#include <cairn/nn/sequential.hpp>

#include <memory>
#include <utility>
#include <vector>

namespace cairn {

struct gcn_config {
    index_t features = 0, classes = 0;
    std::shared_ptr<const graph_operator> graph = nullptr;
    std::vector<index_t> hidden{16};
    double dropout = 0.5;  // 0: none
};

/// (N, nodes, features) → (N, nodes, classes).
template <class T = float, Device D = cpu>
sequential<T, D> gcn(const gcn_config& c) {
    sequential<T, D> net;
    std::vector<index_t> widths = c.hidden;
    widths.push_back(c.classes);
    index_t in = c.features;
    for (std::size_t i = 0; i < widths.size(); ++i) {
        if (c.dropout > 0) net.add(concat("dropout", i + 1), dropout<T, D>(c.dropout));
        net.add(concat("conv", i + 1),
                graph_conv<T, D>(
                    {.in = std::exchange(in, widths[i]), .out = widths[i], .graph = c.graph, .decay = i == 0}));
        if (i + 1 < widths.size()) net.add(concat("relu", i + 1), relu<T, D>());
    }
    return net;
}

}  // namespace cairn
