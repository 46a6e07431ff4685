// The layer and the network of course/write-your-own-layer.md: laws of layers, and a training run.

#include "nn/own_layer.hpp"
#include "nn/layer_laws.hpp"

#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/objectives/classification.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/train/trainer.hpp>

namespace cairn {

namespace {

template <class T>
sequential<T> map(index_t in, index_t out) {
    sequential<T> chain;
    chain.add("map", linear<T>({.in = in, .out = out}));
    return chain;
}

template <class T>
sequential<T> gate(index_t in, index_t out) {
    sequential<T> chain = map<T>(in, out);
    chain.add("sigmoid", activation_layer<T>(activation::sigmoid));
    return chain;
}

// --8<-- [start:model]
sequential<float> model() {
    sequential<float> net;
    net.add("in", linear<float>({.in = 2, .out = 8}));
    net.add("prelu", own::prelu<float>());
    net.add("gated", own::gated<float>(map<float>(8, 8), gate<float>(8, 8)));
    net.add("out", linear<float>({.in = 8, .out = 2}));
    return net;
}
// --8<-- [end:model]

/// Points of two classes: those whose coordinates have the same sign, and the others.
batch points(int step) {
    const random_stream random{3, static_cast<std::uint32_t>(step)};
    batch b;
    b.count = b.global_count = 64;
    b.x = tensor<float>({b.count, 2});
    b.labels = tensor<std::int32_t>({b.count});
    for (index_t i = 0; i < b.x.size(); ++i) b.x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    for (index_t i = 0; i < b.count; ++i) b.labels[i] = b.x[2 * i] * b.x[2 * i + 1] > 0;
    return b;
}

}  // namespace

TEST_CASE("a layer of one's own: laws", "[laws][own]") {
    laws::law_case c = laws::make_case<false>("prelu", {6, 5, 3}, [](auto t) { return own::prelu<decltype(t)>(); });
    c.wrong = std::nullopt;  // any shape
    laws::check_laws(c);
}

TEST_CASE("a container of one's own: laws", "[laws][own]") {
    laws::law_case c = laws::make_case("gated", {4, 5}, [](auto t) {
        using T = decltype(t);
        return own::gated<T>(map<T>(5, 3), gate<T>(5, 3));
    });
    c.depth = 3;
    laws::numerical_gradient(c);
    laws::split_is_joint<double>(c, c.make64());
    laws::repeatable(c);
    laws::accumulates(c);
    laws::narrow_is_double<float>(c, c.make32());
    laws::memory_is_as_costed<float>(c, c.make32());
    laws::shapes_are_checked(c);
    laws::aliases_are_safe(c);
    laws::discarding_changes_nothing(c);
}

TEST_CASE("a layer of one's own is trained by the trainer", "[own]") {
    // --8<-- [start:train]
    sequential<float> net = model();
    arena<float> weights(net.parameters(), 1);  // memory and initial values
    trainer<cpu> train({net, weights}, {bound_optimizer(sgd{{.momentum = 0.9}}, weights), constant(0.1)},
                       classification{});
    const double first = train.step(points(0)).loss;
    double last = 0;
    for (int step = 1; step < 200; ++step) last = train.step(points(step)).loss;
    // --8<-- [end:train]
    CAPTURE(first, last);
    CHECK(last < 0.3 * first);
    std::string names;
    for (const auto& [name, p] : weights.parameters()) names += name + ' ';
    CHECK(names ==
          "in/weight in/bias prelu/slope gated/value/map/weight gated/value/map/bias gated/gate/map/weight "
          "gated/gate/map/bias out/weight out/bias ");
    CHECK(weights.parameters()[2].p->value[0] != 0.25f);
}

/// Which parameters layers announce, in the order of backward.
TEST_CASE("a container of one's own: each parameter is announced once, as soon as its gradient is complete", "[own]") {
    struct noting : gradient_listener {
        std::vector<int> ids;
        void added(std::span<const int> parameters) override {
            ids.insert(ids.end(), parameters.begin(), parameters.end());
        }
    };
    for (const bool split : {false, true}) {
        noting heard;
        sequential<float> net = model();
        const arena<float> weights(net.parameters(), 1);
        pass_context p;
        p.listener = &heard;
        saved_tensors<float> saved;
        tensor<float> y = net.forward(points(0).x.share(), saved, p);
        if (split) {
            net.backward_input(std::move(y), saved, p);
            CHECK(heard.ids.empty());
            net.backward_weight(saved, p);
        } else {
            net.backward(std::move(y), saved, p);
        }
        CHECK(heard.ids == std::vector<int>{7, 8, 3, 4, 5, 6, 2, 0, 1});
    }
}

}  // namespace cairn
