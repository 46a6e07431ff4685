#include "oracle/attention.hpp"
#include "layer_laws.hpp"

#include <cairn/models/transformer.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/adam.hpp>

namespace cairn {
using laws::make_case;

TEST_CASE("attention layer: laws", "[laws][attention]") {
    laws::check_laws(
        make_case("attention", {2, 5, 18}, [](auto t) { return attention<decltype(t)>({.heads = 2, .head_dim = 3}); }));
    laws::check_laws(make_case("attention, causal, one position more than a tile", {1, 129, 12}, [](auto t) {
        return attention<decltype(t)>({.heads = 1, .head_dim = 4, .causal = true, .scale = 0.4});
    }));
    laws::check_laws(make_case("attention with dropout", {2, 6, 18}, [](auto t) {
        return attention<decltype(t)>({.heads = 2, .head_dim = 3, .dropout = 0.3});
    }));
    auto chain = make_case("multi-head attention", {3, 7, 8}, [](auto t) {
        return multi_head_attention<decltype(t)>({.embedding_dim = 8, .heads = 4, .causal = true});
    });
    chain.depth = 3;
    laws::check_laws(chain);
}

TEST_CASE("positions: laws", "[laws][positions]") {
    laws::check_laws(make_case("positions", {3, 5, 4}, [](auto t) {
        return positional_embedding<decltype(t)>({.max_length = 6, .embedding_dim = 4});
    }));
    positional_embedding<float> layer({.max_length = 3, .embedding_dim = 2});
    CHECK_THROWS_WITH(layer.output_shape({1, 4, 2}), Catch::Contains("length up to 3") && Catch::Contains("(1, 4, 2)"));
}

TEST_CASE("attention layer: heads side by side are those of plain loops", "[attention]") {
    constexpr index_t batch = 2, length = 6, heads = 3, dim = 4, width = heads * dim;
    saved_tensors<double> saved;
    attention<double> layer({.heads = heads, .head_dim = dim, .causal = true});
    const auto x = laws::numbers<double>({batch, length, 3, width}, 1);
    const auto y = layer.forward(x.reshaped({batch, length, 3 * width}), saved, {});
    std::vector<double> parts[3];
    for (index_t row = 0; row < batch * length; ++row)
        for (index_t which = 0; which < 3; ++which)
            for (index_t c = 0; c < width; ++c) parts[which].push_back(x[(row * 3 + which) * width + c]);
    const auto expected =
        oracle::attention({batch, length, heads, dim, true, 0.5, {}}, parts[0], parts[1], parts[2], parts[0]);
    for (index_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == Approx(expected.y[std::size_t(i)]).margin(1e-12));
}

TEST_CASE("attention layer: dropout and lengths of a padded batch are those of plain loops", "[attention]") {
    constexpr index_t batch = 3, length = 19, heads = 2, dim = 3, width = heads * dim;
    for (const bool training : {true, false})
        for (const bool padded : {false, true})
            for (const bool causal : {false, true}) {
                CAPTURE(training, padded, causal);
                const std::int32_t lengths[]{19, 4, 0};
                pass_context p{.mode = training ? mode::train : mode::evaluate,
                               .random = {.seed = 8, .step = 2, .first_sample = 5}};
                if (padded) p.lengths = lengths;
                saved_tensors<double> saved;
                attention<double> layer({.heads = heads, .head_dim = dim, .causal = causal, .dropout = 0.4});
                const auto x = laws::numbers<double>({batch, length, 3, width}, 1),
                           dy = laws::numbers<double>({batch, length, width}, 2);
                const auto y = layer.forward(x.reshaped({batch, length, 3 * width}), saved, p);
                std::vector<double> parts[3], slopes(dy.data(), dy.data() + dy.size());
                for (index_t row = 0; row < batch * length; ++row)
                    for (index_t which = 0; which < 3; ++which)
                        for (index_t c = 0; c < width; ++c) parts[which].push_back(x[(row * 3 + which) * width + c]);
                oracle::attention_case c{batch, length, heads, dim, causal, 1 / std::sqrt(3.0), {}};
                if (padded) c.lengths.assign(lengths, lengths + batch);
                const random_stream random = p.random.stream();
                if (training)
                    c.mask = oracle::attention_mask(
                        c, 0.4, [&](std::uint64_t block) { return random.bits4(block); }, 5);
                const auto expected = oracle::attention(c, parts[0], parts[1], parts[2], slopes);
                for (index_t i = 0; i < y.size(); ++i)
                    REQUIRE(y[i] == Approx(expected.y[std::size_t(i)]).margin(1e-12));
                if (!training) continue;
                const auto dx = layer.backward_input(dy.share(), saved, p);
                for (index_t row = 0; row < batch * length; ++row)
                    for (index_t at = 0; at < width; ++at) {
                        const auto there = std::size_t(row * width + at);
                        REQUIRE(dx[row * 3 * width + at] == Approx(expected.dq[there]).margin(1e-12));
                        REQUIRE(dx[(row * 3 + 1) * width + at] == Approx(expected.dk[there]).margin(1e-12));
                        REQUIRE(dx[(row * 3 + 2) * width + at] == Approx(expected.dv[there]).margin(1e-12));
                    }
            }
    pass_context wrong;
    const std::int32_t lengths[]{20, 1, 1};
    wrong.lengths = lengths;
    saved_tensors<double> saved;
    attention<double> layer({.heads = heads, .head_dim = dim});
    CHECK_THROWS_WITH(layer.forward(tensor<double>::filled({batch, length, 3 * width}, 0), saved, wrong),
                      Catch::Contains("sequence 0 has length 20"));
    CHECK_THROWS_WITH(attention<double>({.heads = 1, .head_dim = 2, .dropout = -0.1}), Catch::Contains("dropout -0.1"));
    CHECK(attention<double>({.heads = 1, .head_dim = 2, .dropout = 0.1}).describe() ==
          "attention of 1 heads of 2, dropout 0.1");
}

TEST_CASE("multi-head attention: weights start as Glorot's, biases at zero", "[attention]") {
    auto layers = multi_head_attention<double>({.embedding_dim = 64, .heads = 2, .out_gain = 0.25});
    const arena<double> weights(layers.parameters(), 1);
    std::vector<std::string> names;
    for (const auto& [name, p] : weights.parameters()) {
        names.push_back(name);
        double most = 0;
        for (index_t i = 0; i < p->value.size(); ++i) most = std::max(most, std::abs(p->value[i]));
        if (p->shape.rank() == 1) CHECK(most == 0);
        const double bound = std::sqrt(6.0 / 128) * (name == "out/weight" ? 0.5 : 1);
        if (p->shape.rank() == 2) CHECK(most == Approx(bound).epsilon(0.01));
    }
    CHECK(names == std::vector<std::string>{"qkv/weight", "qkv/bias", "out/weight", "out/bias"});
    CHECK_THROWS_WITH(multi_head_attention({.embedding_dim = 10, .heads = 4}), Catch::Contains("4 heads for width 10"));
    CHECK_THROWS_AS(attention<float>({.heads = 2, .head_dim = 0}), error);
}

TEST_CASE("transformer: laws", "[laws][transformer]") {
    auto c = make_case("transformer", {2, 5}, [](auto t) {
        return transformer<decltype(t)>({.vocab_size = 7,
                                         .max_length = 6,
                                         .embedding_dim = 8,
                                         .heads = 2,
                                         .blocks = 2,
                                         .dropout = 0.1,
                                         .attention_dropout = 0.2});
    });
    c.tokens = 7;
    c.smooth = false;
    c.depth = 20;
    c.wrong = std::nullopt;
    laws::check_laws(c);
}

TEST_CASE("transformer: shape, parameters, and that no position sees what comes", "[transformer]") {
    auto net = transformer({.vocab_size = 65, .max_length = 32, .embedding_dim = 16, .heads = 4, .blocks = 3});
    CHECK(net.output_shape({4, 20}) == shape{4, 20, 65});
    index_t count = 0;
    for (const auto& [name, p] : net.parameters()) count += p->shape.size();
    // Of each block: two norms, 4 width² + 4 width of attention, 8 width² + 5 width of the maps.
    CHECK(count == 65 * 16 + 32 * 16 + 3 * (4 * 16 + 12 * 256 + 9 * 16) + 2 * 16 + 16 * 65);
    const arena<float> weights(net.parameters(), 1);
    saved_tensors<float> none;
    const auto logits = [&](float last) {
        auto ids = tensor<float>::filled({1, 10}, 3);
        ids[7] = last;
        return net.forward(std::move(ids), none, {.mode = mode::evaluate});
    };
    const auto a = logits(1), b = logits(2);
    for (index_t i = 0; i < 7 * 65; ++i) REQUIRE(a[i] == b[i]);
    for (index_t position = 7; position < 10; ++position) {
        double apart = 0;
        for (index_t c = 0; c < 65; ++c) apart += std::abs(double(a(0, position, c) - b(0, position, c)));
        CHECK(apart > 0);
    }
}

TEST_CASE("transformer: learns to say what stood three places before", "[transformer]") {
    constexpr index_t batch = 8, length = 12, vocabulary = 5;
    auto net =
        transformer({.vocab_size = vocabulary, .max_length = length, .embedding_dim = 32, .heads = 2, .blocks = 2});
    arena<float> weights(net.parameters(), 1);
    bound_optimizer optimizer(adam{}, weights);
    double first = 0, last = 0;
    for (std::uint32_t step = 0; step < 150; ++step) {
        tensor<float> ids({batch, length});
        tensor<std::int32_t> labels({batch, length});
        const random_stream random{1, 2, step};
        for (index_t i = 0; i < ids.size(); ++i) ids[i] = float(random.below(vocabulary, std::uint64_t(i)));
        for (index_t i = 0; i < ids.size(); ++i) labels[i] = i % length < 3 ? 0 : std::int32_t(ids[i - 3]);
        saved_tensors<float> saved;
        const pass_context p{.random = {.step = step}, .input_gradient = false};
        auto [loss, dy] = cross_entropy{}(net.forward(std::move(ids), saved, p), labels);
        weights.zero_grad();
        net.backward(std::move(dy), saved, p);
        optimizer.step(3e-3);
        (step == 0 ? first : last) = loss;
    }
    CHECK(first > 1.4);  // log 5 = 1.61 a token
    CHECK(last < 0.1);
}

}  // namespace cairn
