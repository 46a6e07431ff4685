// What a layer draws depends on its path in the whole model and on the places of its samples in the whole batch alone:
// a model that is cut into two stages, and a batch that is cut into parts, have the initial values, masks, results and
// gradients of the whole.

#include "layer_laws.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>

#include <map>

namespace cairn {

namespace {

using model_type = sequential<double>;

/// Layers of every kind of container, each with a dropout of its own.
model_type containers() {
    const auto dense = [](index_t in, index_t out, double rate) {
        model_type c;
        c.add("fc", linear<double>({.in = in, .out = out})).add("drop", dropout<double>(rate));
        return c;
    };
    model_type net;
    net.add("first", dense(7, 12, 0.2));
    net.add(dropout<double>(0.1));
    net.add("block", residual<double>(dense(12, 9, 0.3), dense(12, 9, 0.4)));
    std::vector<model_type> sides;
    sides.push_back(dense(9, 5, 0.3));
    sides.push_back(dense(9, 4, 0.3));
    net.add("sides", concat_branches<double>(std::move(sides)));
    sides.clear();
    sides.push_back(dense(9, 6, 0.3));
    sides.push_back(dense(9, 6, 0.3));
    net.add("sum", add_branches<double>(std::move(sides)));
    net.add("around", concat_skip<double>(dense(6, 3, 0.3)));
    net.add(dropout<double>(0.1));
    net.add("head", dense(9, 5, 0.1));
    return net;
}

model_type text_model() {
    return transformer<double>({.vocab_size = 11,
                                .max_length = 6,
                                .embedding_dim = 8,
                                .heads = 2,
                                .blocks = 2,
                                .dropout = 0.2,
                                .attention_dropout = 0.3});
}

struct network {
    model_type (*make)();
    tensor<double> x;
    index_t classes;
};

network with_containers(index_t samples) { return {containers, laws::numbers<double>({samples, 7}, 1), 5}; }
network with_attention(index_t samples) {
    tensor<double> tokens({samples, 6});
    for (index_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<double>(i * 5 % 11);
    return {text_model, std::move(tokens), 11};
}

tensor<double> rows(const tensor<double>& t, range s) {
    const index_t width = t.size() / t.extent(0);
    return t.slice(s.begin * width, t.shape().with(0, s.count)).clone();
}

struct outcome {
    tensor<double> y;
    double loss;
    std::map<std::string, std::vector<double>> values, grads;  // by path
};

template <class Weights>
void keep(const Weights& weights, outcome& o) {
    for (const auto& [name, p] : weights.parameters()) {
        o.values[name].assign(p->value.span().begin(), p->value.span().end());
        o.grads[name].assign(p->grad.span().begin(), p->grad.span().end());
    }
}

std::pair<double, tensor<double>> loss_of(const tensor<double>& y, index_t classes) {
    tensor<std::int32_t> labels({y.size() / classes});
    for (index_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>(i * 3 % classes);
    auto [loss, dy] = cross_entropy{}(y.clone(), labels);
    return {loss, std::move(dy)};
}

const pass_context how{.random = {.seed = 9, .step = 4}};

outcome whole(const network& n) {
    model_type net = n.make();
    const arena<double> weights(net.parameters(), 3);
    saved_tensors<double> saved;
    outcome o;
    o.y = net.forward(n.x.clone(), saved, how);
    auto [loss, dy] = loss_of(o.y, n.classes);
    o.loss = loss;
    net.backward(std::move(dy), saved, how);
    keep(weights, o);
    return o;
}

/// Moves the first `left` layers of a model_type and of the chains within it to `first`, the others to `second`.
void cut(model_type& from, model_type& first, model_type& second, int& left) {
    for (int i = 0; i < from.size(); ++i) {
        if (auto* const inner = from[i].as<model_type>()) {
            model_type before, after;
            cut(*inner, before, after, left);
            if (before.size()) first.add(from.name(i), std::move(before));
            if (after.size()) second.add(from.name(i), std::move(after));
        } else {
            (left-- > 0 ? first : second).add(from.name(i), std::move(from[i]));
        }
    }
}

outcome in_two_stages(const network& n, int layers) {
    model_type net = n.make(), first, second;
    cut(net, first, second, layers);
    REQUIRE(first.size() > 0);
    if (second.size() == 0) return {};
    const arena<double> first_weights(first.parameters(), 3), second_weights(second.parameters(), 3);
    saved_tensors<double> of_first, of_second;
    outcome o;
    o.y = second.forward(first.forward(n.x.clone(), of_first, how), of_second, how);
    auto [loss, dy] = loss_of(o.y, n.classes);
    o.loss = loss;
    first.backward(second.backward(std::move(dy), of_second, how), of_first, how);
    keep(first_weights, o);
    keep(second_weights, o);
    return o;
}

}  // namespace

TEST_CASE("identity: a model that is cut anywhere has the values, masks and losses of the whole", "[identity]") {
    for (const network& n : {with_containers(4), with_attention(3)}) {
        const outcome expected = whole(n);
        int cuts = 0;
        for (int layers = 1;; ++layers, ++cuts) {
            CAPTURE(layers);
            const outcome o = in_two_stages(n, layers);
            if (o.values.empty()) break;
            CHECK(o.values == expected.values);
            CHECK(laws::same_bits(o.y, expected.y));
            CHECK(o.loss == expected.loss);
            CHECK(o.grads == expected.grads);
        }
        CHECK(cuts >= 8);
    }
}

TEST_CASE("identity: any parts of a batch draw the masks of the whole batch", "[identity]") {
    for (const network& n : {with_containers(13), with_attention(7)}) {
        const outcome expected = whole(n);
        model_type net = n.make();
        const arena<double> weights(net.parameters(), 3);
        for (const int parts : {1, 2, 3, 5})
            for (int part = 0; part < parts; ++part) {
                CAPTURE(parts, part);
                const range s = shard_of(n.x.extent(0), parts, part);
                pass_context p = how;
                p.random.first_sample = s.begin;
                saved_tensors<double> saved;
                const tensor<double> y = net.forward(rows(n.x, s), saved, p), there = rows(expected.y, s);
                for (index_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == Approx(there[i]).margin(1e-12));
                if (s.begin == 0) continue;
                p.random.first_sample = 0;  // other samples, other masks
                CHECK_FALSE(laws::same_bits(net.forward(rows(n.x, s), saved, p), y));
            }
    }
}

TEST_CASE("identity: a mask follows from the path, the step and the seed, whatever stands beside the layer",
          "[identity]") {
    const auto mask = [](const std::string& name, int before, std::uint32_t step = 1, std::uint64_t seed = 2) {
        model_type inner, net;
        for (int i = 0; i < before; ++i) inner.add(concat("idle", i), dropout<double>(0));
        inner.add(name, dropout<double>(0.5));
        net.add("block", std::move(inner));
        saved_tensors<double> saved;
        return net.forward(tensor<double>::filled({3, 70}, 1), saved, {.random = {.seed = seed, .step = step}});
    };
    const tensor<double> one = mask("drop", 0);
    CHECK(laws::same_bits(one, mask("drop", 3)));
    CHECK_FALSE(laws::same_bits(one, mask("other", 0)));
    CHECK_FALSE(laws::same_bits(one, mask("drop", 0, 2)));
    CHECK_FALSE(laws::same_bits(one, mask("drop", 0, 1, 3)));
    tensor<double> expected = tensor<double>::filled({3, 70}, 1);
    dropout_apply(cpu{}, 210, 0.5, stream_of_path(2, path_hash("block/drop"), "forward", 1), expected.data(),
                  expected.data());
    CHECK(laws::same_bits(one, expected));
}

TEST_CASE("identity: two layers of one name are refused", "[identity]") {
    model_type net;
    net.add("drop", dropout<double>(0.5));
    CHECK_THROWS_WITH(net.add("drop", dropout<double>(0.5)), Catch::Contains("two layers are called drop"));
}

}  // namespace cairn
