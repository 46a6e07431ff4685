#pragma once
// Small problems in double for the tests of ADMM: a network, samples that a teacher labels, and what they become split.

#include "catch.hpp"

#include <cairn/admm/output_loss.hpp>
#include <cairn/admm/split_chain.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/models/gcn.hpp>
#include <cairn/models/mlp.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace admm_tests {

using namespace cairn;
using cairn::index_t;

inline tensor<double> normals(const shape& s, std::uint32_t stream) {
    tensor<double> t(s);
    const random_stream random{11, stream, 0};
    for (index_t i = 0; i < t.size(); ++i) t[i] = random.normal(static_cast<std::uint64_t>(i));
    return t;
}

/// A network with its memory.
struct network {
    sequential<double> net;
    std::unique_ptr<arena<double>> weights;
    shape in;

    network(sequential<double> n, shape sample, std::uint64_t seed = 3) : net(std::move(n)), in(sample) {
        weights = std::make_unique<arena<double>>(net.parameters(), seed);
    }
    std::vector<admm::split_layer<double>> layers() { return admm::split_chain(net, in, "admm"); }
    tensor<double> output(const tensor<double>& x) {
        saved_tensors<double> none;
        return net.forward(x.clone(), none, {.mode = mode::evaluate});
    }
    std::vector<double> values() {
        const auto all = weights->values().span();
        return {all.begin(), all.end()};
    }
};

inline network small_mlp(std::vector<index_t> sizes = {6, 9, 8, 4}) {
    const index_t in = sizes.front();
    return {mlp<double>(sizes), {1, in}};
}

/// conv → relu → average pool → flatten → linear
inline network small_conv() {
    sequential<double> net;
    net.add("conv1", conv<double>({.in = 2, .out = 3, .kernel = 3, .pad = 1}));
    net.add("relu1", relu<double>());
    net.add("pool1", average_pool<double>({.kernel = 2}));
    net.add("flatten", flatten<double>());
    net.add("fc", linear<double>({.in = 27, .out = 4}));
    return {std::move(net), {1, 6, 6, 2}};
}

/// conv → average pool → relu → flatten → linear: LeNet's order.
inline network pool_before_relu() {
    sequential<double> net;
    net.add("conv1", conv<double>({.in = 2, .out = 3, .kernel = 3, .pad = 1}));
    net.add("pool1", average_pool<double>({.kernel = 2}));
    net.add("relu1", relu<double>());
    net.add("flatten", flatten<double>());
    net.add("fc", linear<double>({.in = 27, .out = 4}));
    return {std::move(net), {1, 6, 6, 2}};
}

/// Two graph convolutions on seven nodes: one without edges, one with a self loop, edges of one direction alone.
inline network small_graph() {
    csr_matrix<float> a =
        csr_of_pairs<float>(7, 7, {{0, 1}, {0, 4}, {1, 0}, {2, 2}, {2, 5}, {3, 0}, {4, 1}, {5, 2}, {5, 4}});
    a.value[1] = 2.5f;
    return {
        gcn<double>({.features = 5, .classes = 3, .graph = graph_operator::normalised(a), .hidden = {6}, .dropout = 0}),
        {1, 7, 5}};
}

/// Labels that depend on the samples.
inline admm::output_loss<double> classes_of(const tensor<double>& x, index_t classes) {
    const index_t n = x.extent(0), width = x.size() / n;
    admm::output_loss<double> loss;
    loss.labels = tensor<std::int32_t>({n});
    for (index_t i = 0; i < n; ++i) {
        index_t best = 0;
        for (index_t k = 1; k < classes; ++k)
            if (x[i * width + k] > x[i * width + best]) best = k;
        loss.labels[i] = static_cast<std::int32_t>(best);
    }
    return loss;
}

/// Errors of an algorithm's constructor for labels and targets that do not fit 20 samples of 4 classes.
template <class A>
void check_refuses_what_does_not_fit(const std::string& name) {
    using Catch::Matchers::Contains;
    const tensor<double> x = normals({20, 6}, 1);
    const auto make = [&](admm::output_loss<double> loss) {
        network n = small_mlp();
        A(n.layers(), {}, x.clone(), std::move(loss));
    };
    const auto with_label = [&](index_t row, std::int32_t label) {
        admm::output_loss<double> loss = classes_of(x, 4);
        loss.labels[row] = label;
        return loss;
    };
    CHECK_THROWS_WITH(make(with_label(7, 5)), Contains(name + ": label 5 of row 7 is not in [0, 4)"));
    CHECK_THROWS_WITH(make(with_label(19, 4)), Contains(name + ": label 4 of row 19 is not in [0, 4)"));
    CHECK_THROWS_WITH(make(with_label(0, -2)), Contains(name + ": label -2 of row 0 is not in [0, 4), nor -1"));
    CHECK_THROWS_WITH(make(classes_of(normals({3, 6}, 1), 4)),
                      Contains(name + ": 3 labels (3) for an output of shape (20, 4); give 20 labels"));
    CHECK_THROWS_WITH(make({{}, normals({20, 2}, 2)}),
                      Contains(name + ": targets of shape (20, 2) for an output of shape (20, 4)"));
    CHECK_THROWS_WITH(make({}), Contains(name + ": targets of shape"));
    CHECK_NOTHROW(make(with_label(7, -1)));
    CHECK_NOTHROW(make({{}, normals({20, 4}, 2)}));
}

}  // namespace admm_tests
