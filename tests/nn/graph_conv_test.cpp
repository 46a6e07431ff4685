#include "layer_laws.hpp"
#include "messages.hpp"

#include <cairn/models/gcn.hpp>
#include <cairn/nn/graph_conv.hpp>

namespace cairn {
namespace graph_conv_tests {

/// Seven nodes: one without edges, one with a self loop, edges of one direction alone.
csr_matrix<float> graph() {
    csr_matrix<float> a =
        csr_of_pairs<float>(7, 7, {{0, 1}, {0, 4}, {1, 0}, {2, 2}, {2, 5}, {3, 0}, {4, 1}, {5, 2}, {5, 4}});
    a.value[1] = 2.5f;
    return a;
}

TEST_CASE("graph_conv: laws", "[laws][graph_conv]") {
    const auto on = graph_operator::normalised(graph());
    const auto check = [&](const char* name, shape in, index_t out, bool bias) {
        laws::check_laws(laws::make_case<false>(name, in, [=](auto t) {
            return graph_conv<decltype(t)>({.in = in[2], .out = out, .graph = on, .bias = bias});
        }));
    };
    check("one sample", {1, 7, 3}, 4, true);
    check("two samples, no bias", {2, 7, 5}, 2, false);
    laws::law_case net = laws::make_case<false>("gcn", {1, 7, 6}, [=](auto t) {
        return gcn<decltype(t)>({.features = 6, .classes = 3, .graph = on, .hidden = {4}, .dropout = 0.25});
    });
    net.depth = 6;
    net.wrong = shape{1, 6, 6};
    laws::check_laws(net);
}

TEST_CASE("graph_conv: the normalised graph and the layer by plain loops", "[graph_conv]") {
    const csr_matrix<float> a = graph();
    double with_loops[7][7] = {}, degree[7] = {};
    for (index_t r = 0; r < 7; ++r) {
        for (auto i = static_cast<std::size_t>(a.begin[static_cast<std::size_t>(r)]);
             i < static_cast<std::size_t>(a.begin[static_cast<std::size_t>(r) + 1]); ++i)
            with_loops[r][a.column[i]] = static_cast<double>(a.value[i]);
        if (with_loops[r][r] == 0) with_loops[r][r] = 1;
        for (const double v : with_loops[r]) degree[r] += v;
    }
    const auto on = graph_operator::normalised(a);
    laws::bench<double> b(graph_conv<double>({.in = 3, .out = 2, .graph = on}));
    const tensor<double> x = laws::numbers<double>({1, 7, 3}, 1), y = b.forward(x.share());
    const auto& w = b.arena.parameters()[0].p->value;
    const auto& bias = b.arena.parameters()[1].p->value;
    for (index_t r = 0; r < 7; ++r)
        for (index_t k = 0; k < 2; ++k) {
            double sum = bias[k];
            for (index_t c = 0; c < 7; ++c)
                for (index_t f = 0; f < 3; ++f)
                    sum += with_loops[r][c] / std::sqrt(degree[r] * degree[c]) * x[c * 3 + f] * w[f * 2 + k];
            CHECK(y[r * 2 + k] == Approx(sum).epsilon(1e-14));
        }
}

TEST_CASE("graph_conv: decay, names and errors", "[graph_conv]") {
    const auto on = graph_operator::normalised(graph());
    sequential<float> net = gcn<float>({.features = 5, .classes = 3, .graph = on, .hidden = {4, 4}});
    std::vector<std::string> decaying;
    for (const auto& [name, p] : net.parameters())
        if (p->decay) decaying.push_back(name);
    CHECK(decaying == std::vector<std::string>{"conv1/weight"});
    CHECK(net.output_shape({1, 7, 5}) == shape{1, 7, 3});
    CHECK(test::contains(test::message_of([] { graph_conv<float>({.in = 2, .out = 2}); }), "no graph"));
    csr_matrix<float> wide = graph();
    wide.columns = 8;
    CHECK(test::contains(test::message_of([&] { graph_operator::normalised(wide); }), "7 × 8"));
    csr_matrix<float> negative = graph();
    negative.value[0] = -1;
    CHECK(test::contains(test::message_of([&] { graph_operator::normalised(negative); }), "edge 0 - 1 has weight -1"));
}

}  // namespace graph_conv_tests
}  // namespace cairn
