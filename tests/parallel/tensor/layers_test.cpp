// Split layers on ranks that are threads against the whole layers on one: outputs and gradients to 1e-12, halves of
// backward to the bit, bytes against closed forms, and the laws of layers on one rank.

#include "catch.hpp"
#include "messages.hpp"
#include "nn/layer_laws.hpp"
#include "parallel/tensor/split_layers.hpp"

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/self.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/parallel/tensor/channel_conv.hpp>
#include <cairn/parallel/tensor/transformer_parts.hpp>

namespace cairn::split_layers {

using ranks = threads_communicator;

sequence_layout layout_of(bool parts) { return parts ? sequence_layout::parts : sequence_layout::whole; }

/// linear, gelu, linear.
any_layer<double> whole_pair(index_t in, index_t hidden, index_t out) {
    sequential<double> net;
    net.add("a", linear<double>({.in = in, .out = hidden}));
    net.add("gelu", gelu<double>());
    net.add("b", linear<double>({.in = hidden, .out = out}));
    return net;
}
template <Communicator C>
any_layer<double> split_pair(tensor_axis<C>& axis, index_t in, index_t hidden, index_t out, bool parts) {
    sequential<double> net;
    net.add("a", column_linear<C, double>(axis, {.whole = {.in = in, .out = hidden}, .sequences = layout_of(parts)}));
    net.add("gelu", gelu<double>());
    net.add("b", row_linear<C, double>(axis, {.whole = {.in = hidden, .out = out}, .sequences = layout_of(parts)}));
    return net;
}

/// On p ranks, joint and split halves, with and without a thread for messages: as on one rank, and to the bit alike.
void check_split(int p, any_layer<double> whole, const make_split& make, const tensor<double>& x, cut x_cut,
                 cut y_cut) {
    CAPTURE(p);
    const shape out = whole.output_shape(x.shape());
    const result expected = on_one(std::move(whole), x), joint = on_ranks(p, make, x, out, x_cut, y_cut),
                 split = on_ranks(p, make, x, out, x_cut, y_cut, halves::split, false);
    CHECK(difference(joint, expected) <= 1e-12);
    CHECK(same_bits(joint.y, split.y));
    CHECK(same_bits(joint.dx, split.dx));
    for (const auto& [name, g] : joint.gradients) {
        CAPTURE(name);
        CHECK(same_bits(g, split.gradients.at(name)));
    }
}

TEST_CASE("split layers: a column-parallel and a row-parallel linear layer are the two whole ones",
          "[tensor_parallel]") {
    const tensor<double> x = normal({3, 8, 5}, 1);
    for (const bool parts : {false, true})
        for (const int p : {1, 2, 4}) {
            CAPTURE(parts);
            const cut how = parts ? cut::positions : cut::whole;
            check_split(  // 10 hidden numbers: 3, 3, 2, 2 on four ranks
                p, whole_pair(5, 10, 6), [&](ranks_axis& axis) { return split_pair(axis, 5, 10, 6, parts); }, x, how,
                how);
        }
}

TEST_CASE("split layers: each linear layer by itself", "[tensor_parallel]") {
    const tensor<double> x = normal({2, 4, 9}, 1);
    check_split(
        2, linear<double>({.in = 9, .out = 7, .bias = false}),
        [](ranks_axis& axis) {
            return column_linear<ranks, double>(axis, {.whole = {.in = 9, .out = 7, .bias = false}});
        },
        x, cut::whole, cut::features);
    check_split(
        2, linear<double>({.in = 9, .out = 7, .bias = false}),
        [](ranks_axis& axis) { return row_linear<ranks, double>(axis, {.whole = {.in = 9, .out = 7, .bias = false}}); },
        x, cut::features, cut::whole);
}

TEST_CASE("split layers: attention by heads draws the dropout of the whole", "[tensor_parallel]") {
    const tensor<double> x = normal({2, 8, 12}, 1);
    for (const bool parts : {false, true})
        for (const int p : {1, 2, 4})
            for (const index_t heads : {4, 6}) {  // 6: 2, 2, 1, 1 on four ranks
                CAPTURE(parts, heads);
                const multi_head_attention_config c{
                    .embedding_dim = 12, .heads = heads, .causal = heads == 4, .dropout = 0.3};
                const cut how = parts ? cut::positions : cut::whole;
                check_split(
                    p, multi_head_attention<double>(c),
                    [&](ranks_axis& axis) { return split_attention<double>(axis, c, layout_of(parts)); }, x, how, how);
            }
}

TEST_CASE("split layers: an embedding by the vocabulary", "[tensor_parallel]") {
    tensor<double> ids({3, 7});
    for (index_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<double>(i * i % 11);
    for (const int p : {1, 2, 4})
        check_split(
            p, embedding<double>({.num_embeddings = 11, .embedding_dim = 3}),
            [](ranks_axis& axis) {
                return vocabulary_embedding<ranks, double>(axis, {.num_embeddings = 11, .embedding_dim = 3});
            },
            ids, cut::whole, cut::whole);
}

TEST_CASE("split layers: norms, dropout and positions on parts of the sequence", "[tensor_parallel]") {
    const tensor<double> x = normal({3, 8, 5}, 1);
    for (const int p : {1, 2, 4}) {
        check_split(
            p, layer_norm<double>({.features = 5}),
            [](ranks_axis& axis) {
                return sequence_part<ranks, layer_norm<double>>(axis, layer_norm<double>({.features = 5}));
            },
            x, cut::positions, cut::positions);
        check_split(
            p, dropout<double>(0.4), [](ranks_axis& axis) { return sequence_dropout<double>(axis, 0.4); }, x,
            cut::positions, cut::positions);
        check_split(
            p, positional_embedding<double>({.max_length = 10, .embedding_dim = 5}),
            [](ranks_axis& axis) {
                return sequence_cut<ranks, positional_embedding<double>>(
                    axis, positional_embedding<double>({.max_length = 10, .embedding_dim = 5}));
            },
            x, cut::whole, cut::positions);
    }
}

TEST_CASE("split layers: convolutions by output channels, alone and in a ResNet", "[tensor_parallel]") {
    const conv<double>::config c{.in = 3, .out = 6, .kernel = {3, 2}, .stride = {2, 1}, .pad = {1, 0}};
    const tensor<double> images = normal({2, 7, 6, 3}, 1);
    resnet_config net;
    net.widths = {5, 8};
    net.blocks = {1, 1};
    for (const int p : {1, 2, 4}) {
        check_split(
            p, conv<double>(c), [&](ranks_axis& axis) { return channel_conv<ranks, double>(axis, c); }, images,
            cut::whole, cut::whole);
        check_split(
            p, resnet<double>(net),
            [&](ranks_axis& axis) { return resnet<double, cpu>(net, channel_resnet_parts<double, ranks>{&axis}); },
            normal({2, 8, 8, 3}, 1), cut::whole, cut::whole);
    }
}

TEST_CASE("split layers: without the input's gradient nothing of it travels", "[tensor_parallel]") {
    std::int64_t with = 0, without = 0;
    for (const bool wanted : {true, false})
        run_ranks(2, [&](threads_communicator& c) {
            counting_communicator<threads_communicator> counting(c.split(0, c.rank()));
            channel<counting_communicator<threads_communicator>> over(counting);
            tensor_axis<counting_communicator<threads_communicator>> axis(over);
            any_layer<double> layer = split_pair(axis, 5, 10, 6, false);
            arena<double> weights(layer.parameters(), 9);
            saved_tensors<double> saved;
            pass_context p = pass();
            p.input_gradient = wanted;
            tensor<double> y = layer.forward(normal({3, 8, 5}, 1), saved, p);
            layer.backward(std::move(y), saved, p);
            if (c.rank() == 0) (wanted ? with : without) = counting.counts().bytes;
        });
    CHECK(without > 0);
    CHECK(with > without);
}

TEST_CASE("split layers: bytes are those of the closed forms", "[tensor_parallel]") {
    // On a ring with equal parts an all-reduce of n bytes sends 2 (p-1)/p n, a reduce-scatter or all-gather half.
    const index_t batch = 2, length = 8, in = 8, hidden = 16;
    for (const int p : {2, 4})
        for (const bool parts : {false, true}) {
            std::int64_t forward = 0, backward = 0;
            run_ranks(p, [&](threads_communicator& c) {
                using counted = counting_communicator<threads_communicator>;
                counted counting(c.split(0, c.rank()));
                channel<counted> over(counting);
                tensor_axis<counted> axis(over, {.algorithm = all_reduce_algorithm::ring});
                any_layer<double> layer = split_pair(axis, in, hidden, in, parts);
                arena<double> weights(layer.parameters(), 9);
                saved_tensors<double> saved;
                const shape here{batch, parts ? length / p : length, in};
                counting.reset();
                tensor<double> y = layer.forward(normal(here, 1), saved, pass());
                const std::int64_t sent = counting.counts().bytes;
                layer.backward(std::move(y), saved, pass());
                if (c.rank() == 0) forward = sent, backward = counting.counts().bytes - sent;
            });
            CAPTURE(p, parts);
            const std::int64_t n = batch * length * in * 8, ring = 2 * (p - 1) * n / p;
            CHECK(forward == ring);                            // of y; in parts x is gathered, y reduce-scattered
            CHECK(backward == (parts ? ring / 2 * 3 : ring));  // in parts dy is gathered, x again, dx reduce-scattered
        }
}

TEST_CASE("split layers: what a pass saves in parts", "[tensor_parallel]") {
    index_t whole = 0, parts = 0;
    for (const bool cut : {false, true})
        run_ranks(4, [&](threads_communicator& c) {
            channel<threads_communicator> over(c);
            ranks_axis axis(over);
            any_layer<double> layer =
                column_linear<ranks, double>(axis, {.whole = {.in = 64, .out = 8}, .sequences = layout_of(cut)});
            arena<double> weights(layer.parameters(), 9);
            saved_tensors<double> saved;
            layer.forward(normal({4, cut ? 16 : 64, 64}, 1), saved, pass());
            if (c.rank() == 0) (cut ? parts : whole) = memory_pool::host().use_of(memory_category::saved).live;
        });
    CHECK(whole == 4 * 64 * 64 * 8);
    CHECK(parts == whole / 4);
}

TEST_CASE("split layers: on one rank they satisfy the laws of layers", "[tensor_parallel]") {
    self_communicator self;
    channel<self_communicator> over(self);
    tensor_axis<self_communicator> axis(over);
    const bool parts = GENERATE(false, true);
    const int which = GENERATE(0, 1, 2, 3, 4, 5, 6);
    CAPTURE(parts, which);
    const auto check = [](const std::string& name, const shape& in, auto make, auto change) {
        laws::law_case c = laws::make_case(name, in, make);
        change(c);
        laws::check_laws(c);
    };
    const auto as_it_is = [](laws::law_case&) {};
    using C = self_communicator;
    const sequence_layout sequences = layout_of(parts);
    if (which == 0)
        check(
            "column_linear", {2, 4, 5},
            [&](auto t) {
                return column_linear<C, decltype(t)>(axis, {.whole = {.in = 5, .out = 6}, .sequences = sequences});
            },
            as_it_is);
    if (which == 1)
        check(
            "row_linear", {2, 4, 5},
            [&](auto t) {
                return row_linear<C, decltype(t)>(axis, {.whole = {.in = 5, .out = 6}, .sequences = sequences});
            },
            as_it_is);
    if (which == 2)
        check(
            "split_attention", {2, 4, 6},
            [&](auto t) {
                return split_attention<decltype(t)>(axis, {.embedding_dim = 6, .heads = 2, .dropout = 0.2}, sequences);
            },
            [](laws::law_case& c) { c.depth = 5; });
    if (parts) return;
    if (which == 3)
        check(
            "vocabulary_embedding", {2, 6},
            [&](auto t) {
                return vocabulary_embedding<C, decltype(t)>(axis, {.num_embeddings = 7, .embedding_dim = 4});
            },
            [](laws::law_case& c) {
                c.tokens = 7;
                c.smooth = false;
                c.wrong = std::nullopt;
            });
    if (which == 4)
        check(
            "sequence_part", {2, 4, 5},
            [&](auto t) {
                using norm = layer_norm<decltype(t)>;
                return sequence_part<C, norm>(axis, norm({.features = 5}));
            },
            as_it_is);
    if (which == 6)
        check(
            "channel_conv", {2, 5, 4, 3},
            [&](auto t) { return channel_conv<C, decltype(t)>(axis, {.in = 3, .out = 4}); }, as_it_is);
    if (which == 5)
        check(
            "sequence_dropout", {2, 4, 5}, [&](auto t) { return sequence_dropout<decltype(t)>(axis, 0.3); },
            [](laws::law_case& c) { c.wrong = std::nullopt; });
}

TEST_CASE("split layers: what cannot be cut is refused", "[tensor_parallel]") {
    const auto refused = [](int p, auto&& make) {
        return test::message_of([&] {
            run_ranks(p, [&](threads_communicator& c) {
                channel<threads_communicator> over(c);
                ranks_axis axis(over);
                make(axis);
            });
        });
    };
    using test::contains;
    CHECK(contains(refused(4, [](ranks_axis& axis) { channel_conv<ranks, double>(axis, {.in = 3, .out = 2}); }),
                   "channel_conv 3 -> 2: output channels: 2 cannot be cut over 4 ranks"));
    CHECK(contains(
        refused(2, [](ranks_axis& axis) { channel_conv<ranks, double>(axis, {.in = 4, .out = 4, .groups = 2}); }),
        "a convolution by output channels has one"));
    const std::string heads = refused(4, [](ranks_axis& axis) {
        split_attention<double>(axis, {.embedding_dim = 6, .heads = 3}, sequence_layout::whole);
    });
    CHECK(contains(heads, "attention of width 6: heads: 3 cannot be cut over 4 ranks"));
    CHECK(contains(heads, "use at most 3 tensor-parallel ranks"));
    CHECK(contains(refused(2,
                           [](ranks_axis& axis) {
                               split_attention<double>(axis, {.embedding_dim = 7, .heads = 2}, sequence_layout::whole);
                           }),
                   "the width must be a multiple of the heads"));
    CHECK(contains(refused(4, [](ranks_axis& axis) { split_pair(axis, 5, 3, 2, false); }),
                   "column_linear 5 -> 3: outputs: 3 cannot be cut over 4 ranks"));
    CHECK(
        contains(refused(4, [](ranks_axis& axis) { row_linear<ranks, double>(axis, {.whole = {.in = 2, .out = 4}}); }),
                 "row_linear 2 -> 4: inputs: 2 cannot be cut over 4 ranks"));
    CHECK(contains(refused(4,
                           [](ranks_axis& axis) {
                               vocabulary_embedding<ranks, double>(axis, {.num_embeddings = 3, .embedding_dim = 2});
                           }),
                   "vocabulary_embedding 3 x 2: entries: 3 cannot be cut over 4 ranks"));
    CHECK(contains(refused(2,
                           [](ranks_axis& axis) {
                               sequence_cut<ranks, positional_embedding<double>>(
                                   axis, positional_embedding<double>({.max_length = 9, .embedding_dim = 2}))
                                   .output_shape({2, 7, 2});
                           }),
                   "length 7 cannot be cut into 2 equal parts"));
    CHECK(contains(refused(2,
                           [](ranks_axis& axis) {
                               vocabulary_embedding<ranks, double> layer(axis,
                                                                         {.num_embeddings = 3, .embedding_dim = 2});
                               const arena<double> weights(layer.parameters(), 1);
                               saved_tensors<double> saved;
                               layer.forward(tensor<double>::filled({2}, 3), saved, {});
                           }),
                   "id 3 of row 0 is not a whole number in [0, 3)"));
    CHECK(contains(refused(2,
                           [](ranks_axis& axis) {
                               split_pair(axis, 5, 4, 2, false).output_shape({2, 4});
                           }),
                   "takes (..., 5), got (2, 4)"));
}

}  // namespace cairn::split_layers
