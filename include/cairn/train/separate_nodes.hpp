#pragma once
// Simplified graph convolution (Wu et al., ICML 2019): the part without weights goes in front, once.
//   x = Âᵏ X      Â = D^-1/2 (A + I) D^-1/2 of nn/graph_conv.hpp, k hops, X the features of all nodes
// After that a node is a sample like any other: a network of linear layers needs no graph, and only the nodes of a part
// (training, validation, test) are read. Tested against plain loops in tests/train/separate_nodes_test.cpp.

#include <cairn/data/array_dataset.hpp>
#include <cairn/data/data_format.hpp>
#include <cairn/data/graph_nodes.hpp>
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

/// data.format = "graph": Planetoid's ind.NAME.* or NAME.npz. One sample, the graph; or after `propagate` hops a sample
/// for each node.
struct graph_format {
    static constexpr const char* name = "graph";
    static constexpr data_source source{"graph"};
    std::string graph = "cora";
    bool normalise = true, validate = false;
    int hops = 0;
    float scale = 1;
    std::uint64_t split_seed = 0;

    template <class Table>
    void read(Table& table) {
        table("graph", graph);
        table("normalise", normalise);
        table("test_part", validate, {{"test", false}, {"validation", true}});
        table("propagate", hops, from_to(0, 100));
        table("scale", scale, above(0));
        table("split_seed", split_seed, at_least(0));
    }
    /// A ring of nodes, each with two neighbours.
    data_parts without_files(std::uint64_t seed) const {
        constexpr index_t nodes = 512, features = 64;
        if (hops > 0) return synthetic_parts({features}, numbered_classes(7), seed);
        target_info info = numbered_classes(7);
        info.labels_each = nodes;
        info.labels = label_place::nodes;
        std::vector<std::pair<std::int32_t, std::int32_t>> edges;
        for (std::int32_t i = 0; i < nodes; ++i) {
            edges.emplace_back(i, (i + 1) % nodes);
            edges.emplace_back((i + 1) % nodes, i);
        }
        data_parts parts = make_data_parts(synthetic_data(1, {nodes, features}, std::move(info), seed), {});
        parts.graph = std::make_shared<const csr_matrix<float>>(csr_of_pairs<float>(nodes, nodes, std::move(edges)));
        return parts;
    }
    data_parts load(const std::filesystem::path& folder) const {
        const citation_graph g = std::filesystem::exists(folder / ("ind." + graph + ".graph"))
                                     ? read_planetoid(folder, graph)
                                     : read_graph_npz(folder / (graph + ".npz"), split_seed);
        auto features = graph_nodes::dense(g.features, normalise, g.name);
        for (float& x : *features) x *= scale;
        if (hops > 0) propagate(*graph_operator::normalised(g.adjacency), hops, *features);
        const auto part_of = [&](const std::vector<index_t>& nodes) -> any_dataset {
            if (hops > 0) return separate_nodes(g, *features, nodes);
            return graph_nodes(g.name, features, g.labels, g.classes, nodes);
        };
        data_parts parts = make_data_parts(part_of(g.train), part_of(validate ? g.validation : g.test));
        if (hops == 0) parts.graph = std::make_shared<const csr_matrix<float>>(g.adjacency);
        return parts;
    }
};

}  // namespace cairn
