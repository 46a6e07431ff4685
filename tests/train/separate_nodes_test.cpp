// Nodes as samples of their own: features summed over hops by plain loops, rows of a part, and what has no class.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/train/data_formats.hpp>

#include <cmath>
#include <limits>

namespace separate_nodes_tests {

using namespace cairn;

// A path of four nodes, a node without edges.
citation_graph five_nodes() {
    citation_graph g;
    g.name = "five";
    g.adjacency = csr_of_pairs<float>(5, 5, {{0, 1}, {1, 0}, {1, 2}, {2, 1}, {2, 3}, {3, 2}});
    g.labels = {0, 1, -1, 1, 0};
    g.classes = 2;
    return g;
}

TEST_CASE("separate nodes: features go k hops, as plain loops say", "[train]") {
    const citation_graph g = five_nodes();
    const double degree[] = {2, 3, 3, 2, 1};
    double x[5][2], y[5][2];
    std::vector<float> features;
    for (int i = 0; i < 5; ++i)
        for (int k = 0; k < 2; ++k) features.push_back(static_cast<float>(x[i][k] = i - 2.0 * k));
    propagate(*graph_operator::normalised(g.adjacency), 3, features);
    for (int hop = 0; hop < 3; ++hop) {
        for (int i = 0; i < 5; ++i)
            for (int k = 0; k < 2; ++k) {
                y[i][k] = 0;
                for (int j = 0; j < 5; ++j)
                    if (i == j || (std::abs(i - j) == 1 && std::max(i, j) < 4))
                        y[i][k] += x[j][k] / std::sqrt(degree[i] * degree[j]);
            }
        std::copy(&y[0][0], &y[0][0] + 10, &x[0][0]);
    }
    for (int i = 0; i < 10; ++i) CHECK(features[static_cast<std::size_t>(i)] == Approx(x[i / 2][i % 2]).margin(1e-5));
    CHECK(features[8] == 4);  // itself alone
}

TEST_CASE("separate nodes: a part's rows in order; no class and no number are refused by name", "[train]") {
    const citation_graph g = five_nodes();
    std::vector<float> features(10);
    for (std::size_t i = 0; i < 10; ++i) features[i] = static_cast<float>(i);
    const array_dataset some = separate_nodes(g, features, {3, 0});
    CHECK(some.size() == 2);
    CHECK(some.sample_shape() == shape{2});
    float x[2];
    std::int32_t label = 7;
    some.read(0, {}, {x, &label, nullptr});
    CHECK((x[0] == 6 && x[1] == 7 && label == 1));
    const auto why = [&](const std::vector<float>& of, std::vector<index_t> nodes) {
        return test::message_of([&] { separate_nodes(g, of, nodes); });
    };
    CHECK(test::contains(why(features, {0, 2}), "graph five: node 2 has class -1 of 2; it cannot count"));
    CHECK(test::contains(why(features, {5}), "node 5 of 5"));
    features[6] = std::numeric_limits<float>::quiet_NaN();
    CHECK(test::contains(why(features, {0, 3}), "nodes of graph five: element 2 of x is nan"));
}

}  // namespace separate_nodes_tests
