#pragma once
// Simplified graph convolution (Wu et al., ICML 2019): what does not depend on weights goes in front, once.
//   x = Âᵏ X      Â = D^-1/2 (A + I) D^-1/2 of nn/graph_conv.hpp, k hops, X the features of all nodes
// After that a node is a sample like any other: a network of linear layers needs no graph, and only the nodes of a part
// (training, validation, test) are read. Tested against plain loops in tests/train/separate_nodes_test.cpp.

#include <cairn/data/array_dataset.hpp>
#include <cairn/data/planetoid.hpp>
#include <cairn/nn/graph_conv.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// Replaces x (nodes, width) by Âᵏ x.
inline void propagate(const graph_operator& graph, int hops, std::vector<float>& x) {
    const auto nodes = static_cast<std::size_t>(graph.nodes());
    require(nodes > 0 && x.size() % nodes == 0, "graph: ", x.size(), " features of ", nodes, " nodes");
    std::vector<float> y(x.size());
    for (int k = 0; k < hops; ++k) {
        csr_times_dense(cpu{}, graph.matrix<float>(), static_cast<index_t>(x.size() / nodes), x.data(), y.data());
        std::swap(x, y);
    }
}

/// The rows of x (nodes, features) that belong to `nodes`, each with its class. Throws on a node without one, and on
/// features that are not finite.
inline array_dataset separate_nodes(const citation_graph& g, const std::vector<float>& x,
                                    const std::vector<index_t>& nodes) {
    const auto width = static_cast<index_t>(x.size()) / g.nodes();
    tensor<float> rows({std::ssize(nodes), width}, memory_category::data);
    tensor<std::int32_t> labels({std::ssize(nodes)}, memory_category::data);
    for (index_t i = 0; i < std::ssize(nodes); ++i) {
        const index_t node = nodes[static_cast<std::size_t>(i)];
        require(node >= 0 && node < g.nodes(), "graph ", g.name, ": node ", node, " of ", g.nodes());
        std::copy_n(x.data() + node * width, width, rows.data() + i * width);
        labels[i] = g.labels[static_cast<std::size_t>(node)];
        require(labels[i] >= 0 && labels[i] < g.classes, "graph ", g.name, ": node ", node, " has class ", labels[i],
                " of ", g.classes, "; it cannot count");
    }
    std::vector<std::string> classes;
    for (index_t c = 0; c < g.classes; ++c) classes.push_back(concat("class ", c));
    return {std::move(rows), std::move(labels), std::move(classes), "nodes of graph " + g.name};
}

}  // namespace cairn
