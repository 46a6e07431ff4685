#pragma once
// The layers of a transformer whose matrices are cut over the ranks of a tensor axis: parts for the builder of
// models/transformer.hpp, which makes the same network of them, with the same paths.
//   tokens       by the vocabulary                          all-reduce
//   attention    Q, K, V by heads, out by inputs            all-reduce in forward, all-reduce in backward
//   mlp          in by outputs, out by inputs               the same
//   head         by the vocabulary                          all-reduce in backward; logits stay in parts:
//                                                           vocabulary_cross_entropy
// With sequences in parts each of the four all-reduces of a block is a reduce-scatter and an all-gather, and norms,
// dropout and sums between are computed for 1/p of the positions by each rank.
// Tested in tests/parallel/tensor/training_test.cpp against one rank.

#include <cairn/nn/attention.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/positional_embedding.hpp>
#include <cairn/parallel/tensor/column_linear.hpp>
#include <cairn/parallel/tensor/row_linear.hpp>
#include <cairn/parallel/tensor/sequence_layers.hpp>
#include <cairn/parallel/tensor/vocabulary_embedding.hpp>

namespace cairn {

/// Multi-head attention with the heads cut over ranks: those of multi_head_attention(), with its paths. Heads may be
/// uneven; throws where a rank would have none.
template <class T, Device D = cpu, Communicator C>
sequential<T, D> split_attention(tensor_axis<C>& axis, const multi_head_attention_config& c,
                                 sequence_layout sequences) {
    require(c.embedding_dim > 0 && c.heads > 0 && c.embedding_dim % c.heads == 0, "split_attention: ", c.heads,
            " heads for width ", c.embedding_dim, "; the width must be a multiple of the heads");
    const index_t head_dim = c.embedding_dim / c.heads;
    const range heads = axis.part_of(c.heads, concat("attention of width ", c.embedding_dim, ": heads"));
    sequential<T, D> layers;
    layers.add("qkv",
               column_linear<C, T, D>(
                   axis, {.whole = qkv_projection<T, D>(c), .parts = 3, .unit = head_dim, .sequences = sequences}));
    layers.add("attention", attention<T, D>({.heads = heads.count,
                                             .head_dim = head_dim,
                                             .causal = c.causal,
                                             .dropout = c.dropout,
                                             .all_heads = c.heads,
                                             .first_head = heads.begin}));
    layers.add("out",
               row_linear<C, T, D>(axis, {.whole = out_projection<T, D>(c), .unit = head_dim, .sequences = sequences}));
    return layers;
}

/// See the top of the file; what transformer_parts (models/transformer.hpp) is for one rank.
template <class T, Communicator C, Device D = cpu>
struct tensor_transformer_parts {
    tensor_axis<C>* axis;
    sequence_layout sequences = sequence_layout::whole;

    any_layer<T, D> tokens(const typename embedding<T, D>::config& c) const {
        return vocabulary_embedding<C, T, D>(*axis, c);
    }
    any_layer<T, D> positions(const typename positional_embedding<T, D>::config& c) const {
        return cut_or_whole(positional_embedding<T, D>(c));
    }
    any_layer<T, D> dropout(double rate) const {
        if (in_parts()) return sequence_dropout<T, D>(*axis, rate);
        return cairn::dropout<T, D>(rate);
    }
    any_layer<T, D> norm(const typename layer_norm<T, D>::config& c) const {
        layer_norm<T, D> layer(c);
        if (in_parts()) return sequence_part<C, layer_norm<T, D>>(*axis, std::move(layer));
        replicate_parameters(layer);
        return any_layer<T, D>(std::move(layer));  // nvcc would copy
    }
    sequential<T, D> attention(const multi_head_attention_config& c) const {
        return split_attention<T, D>(*axis, c, sequences);
    }
    any_layer<T, D> ffn_in(const typename linear<T, D>::config& c) const {
        return column_linear<C, T, D>(*axis, {.whole = c, .sequences = sequences});
    }
    any_layer<T, D> ffn_out(const typename linear<T, D>::config& c) const {
        return row_linear<C, T, D>(*axis, {.whole = c, .sequences = sequences});
    }
    any_layer<T, D> head(const typename linear<T, D>::config& c) const { return ffn_in(c); }

private:
    bool in_parts() const { return sequences == sequence_layout::parts; }
    any_layer<T, D> cut_or_whole(positional_embedding<T, D> layer) const {
        if (in_parts()) return sequence_cut<C, positional_embedding<T, D>>(*axis, std::move(layer));
        replicate_parameters(layer);
        return any_layer<T, D>(std::move(layer));  // nvcc would copy
    }
};

}  // namespace cairn
