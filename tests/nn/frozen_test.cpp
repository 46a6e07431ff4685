// Frozen parameters: they stay, layers in front of all that trains are not run backward, and what trains has the bits
// of a network in which nothing is frozen and the frozen values are put back after each step.

#include "catch.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/pipeline/tied_weights.hpp>
#include <cairn/train/freeze.hpp>

#include "messages.hpp"

#include <cmath>
#include <map>
#include <string>
#include <vector>

namespace cairn::frozen_test {

using patterns = std::vector<std::string>;

tensor<float> numbers(const shape& s, double step) {
    tensor<float> t(s);
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<float>(std::sin(step * static_cast<double>(i + 1)));
    return t;
}
std::vector<float> values_of(const tensor<float>& t) { return {t.data(), t.data() + t.size()}; }

sequential<float> network() {
    const auto conv3 = [](index_t in) { return conv<float>({.in = in, .out = 4, .kernel = 3, .pad = 1}); };
    sequential<float> stem, body, net;
    stem.add("conv", conv3(2)).add("act", relu<float>());
    body.add("conv1", conv3(4)).add("act", relu<float>()).add("conv2", conv3(4));
    net.add("stem", std::move(stem)).add("block", residual<float>(std::move(body)));
    net.add("act", relu<float>()).add("flat", flatten<float>()).add("norm", layer_norm<float>({.features = 64}));
    net.add("hidden", linear<float>({.in = 64, .out = 6})).add("head", linear<float>({.in = 6, .out = 3}));
    return net;
}

enum class halves { together, apart };
struct trained {
    std::map<std::string, std::vector<float>> values;
    std::size_t saved_by_stem = 0;
};

/// After four steps of SGD with momentum. `frozen` parameters are, or have their first values put back.
trained train(const patterns& frozen, bool put_back, halves how = halves::together, bool recompute = false) {
    sequential<float> net = network(), names = network();
    freeze(names.parameters(), frozen);
    if (!put_back) freeze(net.parameters(), frozen);
    arena<float> weights(net.parameters(), 7);
    std::map<std::string, tensor<float>> first;
    for (const auto& [path, p] : names.parameters())
        if (p->frozen) first.emplace(path, tensor<float>());
    const auto all = net.parameters();
    for (const auto& [path, p] : all)
        if (first.contains(path)) first[path] = p->value.clone();
    if (recompute) net.recompute({{0, 2}, {3, 6}});
    bound_optimizer rule(sgd{{.momentum = 0.9, .weight_decay = 1e-2}}, weights);
    trained result;
    for (int step = 0; step < 4; ++step) {
        pass_context p{.random = {.seed = 3}, .input_gradient = false};
        saved_tensors<float> saved;
        weights.zero_grad();
        tensor<float> y = net.forward(numbers({5, 4, 4, 2}, 0.3 + step), saved, p);
        result.saved_by_stem += saved.child(0).empty() ? 0 : 1;
        if (how == halves::together) {
            backward(net, std::move(y), saved, p);  // of half the squares of y
        } else {
            net.backward_input(std::move(y), saved, p);
            net.backward_weight(saved, p);
        }
        CHECK(saved.empty());
        rule.step(0.02);
        if (put_back)
            for (const auto& [path, q] : all)
                if (first.contains(path)) std::copy_n(first[path].data(), q->value.size(), q->value.data());
    }
    for (const auto& [path, q] : all) {
        result.values[path] = values_of(q->value);
        if (first.contains(path)) CHECK(values_of(first[path]) == result.values[path]);
    }
    return result;
}

TEST_CASE("frozen: what trains has the bits of a network whose frozen values are put back", "[frozen]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (const patterns& frozen : {patterns{"stem*"}, patterns{"stem*", "block*"}, patterns{"stem*", "block/conv1/*"},
                                   patterns{"*/bias"}, patterns{"hidden/weight"}, patterns{"norm/weight", "head/*"},
                                   patterns{"head*"}, patterns{"stem/conv/bias", "block/conv2*"}}) {
        INFO(frozen.front());
        const auto expected = train(frozen, true).values;
        const trained together = train(frozen, false);
        CHECK(together.values == expected);
        CHECK(train(frozen, false, halves::apart).values == expected);
        CHECK(train(frozen, false, halves::together, true).values == expected);
        CHECK((together.saved_by_stem == 0) == (frozen.front() == "stem*"));
    }
}

TEST_CASE("frozen: parameters have no place among those that train", "[frozen][arena]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    sequential<float> net = network();
    const index_t count = freeze(net.parameters(), {"stem*", "block*"});
    CHECK(count == (2 * 9 * 4 + 4) + 2 * (4 * 9 * 4 + 4));
    arena<float> weights(net.parameters(), 7);
    CHECK(weights.parameters().size() == 6);
    CHECK(weights.frozen().size() == 6);
    for (const auto& [path, p] : weights.frozen()) CHECK(p->id == -1);
    CHECK(weights.count() == 2 * 64 + (64 * 6 + 6) + (6 * 3 + 3));
    // The same first values whatever is frozen.
    sequential<float> other = network();
    const arena<float> plain(other.parameters(), 7);
    for (const auto& [path, p] : net.parameters())
        for (const auto& [its_path, q] : other.parameters())
            if (path == its_path) CHECK(values_of(p->value) == values_of(q->value));
}

TEST_CASE("frozen: batch normalisation is by its running values, which stay", "[frozen][batch_norm]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    for (const auto act : {activation::none, activation::relu}) {
        batch_norm<float> layer({.channels = 3, .act = act});
        freeze(layer.parameters(), {});
        for (auto& [path, p] : layer.parameters()) p->frozen = true;
        arena<float> weights(layer.parameters(), 1);
        for (auto& [path, t] : layer.buffers())
            for (index_t i = 0; i < 3; ++i) (*t)[i] = path == "running_mean" ? 0.5f - float(i) : 0.25f + float(i);
        for (auto& [path, p] : layer.parameters())
            for (index_t i = 0; i < 3; ++i) p->value[i] = path == "weight" ? 1.5f - float(i) : 0.1f * float(i);
        const tensor<float> x = numbers({4, 5, 3}, 0.7), dy = numbers({4, 5, 3}, 1.3);
        saved_tensors<float> saved, none;
        const tensor<float> y = layer.forward(x.clone(), saved, {}),
                            evaluated = layer.forward(x.clone(), none, {.mode = mode::evaluate});
        CHECK(values_of(y) == values_of(evaluated));
        const tensor<float> dx = backward(layer, dy.clone(), saved, {});
        CHECK(saved.empty());
        for (index_t i = 0; i < dx.size(); ++i) {
            const double channel = double(i % 3), slope = (1.5 - channel) / std::sqrt(0.25 + channel + 1e-5);
            const double expected = act == activation::relu && y[i] <= 0 ? 0 : slope * double(dy[i]);
            CHECK(std::abs(double(dx[i]) - expected) <= 1e-6 * std::abs(expected));
        }
        for (auto& [path, t] : layer.buffers())
            for (index_t i = 0; i < 3; ++i)
                CHECK((*t)[i] == (path == "running_mean" ? 0.5f - float(i) : 0.25f + float(i)));
        // One value a channel has no variance, and needs none.
        CHECK(layer.forward(numbers({1, 3}, 0.7), saved, {}).size() == 3);
    }
}

TEST_CASE("frozen: a use of a frozen parameter goes with it", "[frozen]") {
    autotune_cache::global().set_policy(autotune_policy::first);
    sequential<float> net;
    net.add("table", embedding<float>({.num_embeddings = 5, .embedding_dim = 4, .tied = true}));
    net.add("head", linear<float>({.in = 4, .out = 5, .tied_to = "table/weight"}));
    freeze(net.parameters(), {"table*"});
    arena<float> weights(net.parameters(), 1);
    tied_weights<float, cpu, threads_communicator> tied(weights);
    CHECK(weights.parameters().size() == 1);  // the bias
    CHECK(weights.uses().front().p->frozen);
    CHECK(weights.uses().front().p->value.data() == weights.frozen().front().p->value.data());
    const std::vector<float> before = values_of(weights.frozen_values());
    saved_tensors<float> saved;
    const pass_context p{.input_gradient = false};
    tied.begin();
    tensor<float> ids({2, 3});
    for (index_t i = 0; i < 6; ++i) ids[i] = float(i % 5);
    tensor<float> y = net.forward(std::move(ids), saved, p);
    backward(net, std::move(y), saved, p);
    tied.sum(nullptr);
    CHECK(values_of(weights.frozen_values()) == before);
    sequential<float> again;
    again.add("table", embedding<float>({.num_embeddings = 5, .embedding_dim = 4, .tied = true}));
    again.add("head", linear<float>({.in = 4, .out = 5, .bias = false, .tied_to = "table/weight"}));
    CHECK_THAT(test::message_of([&] { freeze(again.parameters(), {"head*"}); }), Catch::Contains("\"head*\" matches"));
}

TEST_CASE("frozen: patterns that match nothing, or all", "[frozen]") {
    sequential<float> net = network();
    const auto why = [&](const patterns& p) { return test::message_of([&] { freeze(net.parameters(), p); }); };
    CHECK_THAT(why({"stem*", "layer9*"}), Catch::Contains("optimizer.freeze: \"layer9*\" matches no parameter") &&
                                              Catch::Contains("block/conv1/weight"));
    CHECK_THAT(why({"*"}), Catch::Contains("match all parameters, and nothing is left to train"));
    CHECK_THAT(why({""}), Catch::Contains("\"\" matches no parameter"));
    CHECK(freeze(network().parameters(), {}) == 0);
}

}  // namespace cairn::frozen_test
