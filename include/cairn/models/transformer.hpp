#pragma once
// Language model in the form of GPT-2 (Radford et al. 2019): tokens and learned positions, blocks with the
// normalisation in front,
//   x ← x + attention(norm(x)),   x ← x + W₂ gelu(W₁ norm(x) + b₁) + b₂
// a last normalisation and a linear head. Causal: the logits of position i depend on the tokens up to i, whose
// successor they predict. The head's matrix may be the embedding's (Press and Wolf 2017), as in GPT-2.
// Weights start as Vaswani et al.'s (Glorot uniform); maps that end a branch with 1 / (2 blocks) of the variance, so
// that the sum over all branches keeps its size (GPT-2, section 2.3).

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/attention.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/positional_embedding.hpp>

namespace cairn {

/// The defaults are a small model of characters.
struct transformer_config {
    index_t vocab_size = 256;  // token numbers are below it
    index_t max_length = 256;  // positions
    index_t embedding_dim = 128;
    index_t heads = 4;  // divide embedding_dim
    int blocks = 4;
    index_t ffn_dim = 0;  // of the two maps after attention; 0: 4 embedding_dim
    double dropout = 0;   // behind the embedding and at the end of each branch; 0: none
    bool causal = true;
    double attention_dropout = 0;  // of the attention's weights
    bool tied = false;             // the head's matrix is that of "tokens"
};

/// Makes the layers of a transformer, each whole. Other parts with the same members make the same network of layers
/// that several ranks share (parallel/tensor/transformer_parts.hpp).
template <class T = float, Device D = cpu>
struct transformer_parts {
    any_layer<T, D> tokens(const typename embedding<T, D>::config& c) const { return embedding<T, D>(c); }
    any_layer<T, D> positions(const typename positional_embedding<T, D>::config& c) const {
        return positional_embedding<T, D>(c);
    }
    any_layer<T, D> dropout(double rate) const { return cairn::dropout<T, D>(rate); }
    any_layer<T, D> norm(const typename layer_norm<T, D>::config& c) const { return layer_norm<T, D>(c); }
    sequential<T, D> attention(const multi_head_attention_config& c) const { return multi_head_attention<T, D>(c); }
    any_layer<T, D> ffn_in(const typename linear<T, D>::config& c) const { return linear<T, D>(c); }
    any_layer<T, D> ffn_out(const typename linear<T, D>::config& c) const { return linear<T, D>(c); }
    any_layer<T, D> head(const typename linear<T, D>::config& c) const { return linear<T, D>(c); }
};

/// Token numbers (batch, length) → logits (batch, length, vocabulary). Layers "tokens", "positions", "block1" …,
/// "norm", "head", made by `parts`.
template <class T, Device D, class Parts>
sequential<T, D> transformer(const transformer_config& c, const Parts& parts) {
    require(c.blocks >= 1, "transformer: ", c.blocks, " blocks; at least one is needed");
    const index_t hidden = c.ffn_dim ? c.ffn_dim : 4 * c.embedding_dim;
    const double out_gain = 0.5 / c.blocks;
    const auto with_dropout = [&](sequential<T, D>& chain) {
        if (c.dropout > 0) chain.add("dropout", parts.dropout(c.dropout));
    };
    sequential<T, D> net;
    net.add("tokens",
            parts.tokens(
                {.num_embeddings = c.vocab_size, .embedding_dim = c.embedding_dim, .deviation = 0.02, .tied = c.tied}));
    net.add("positions", parts.positions({.max_length = c.max_length, .embedding_dim = c.embedding_dim}));
    with_dropout(net);
    for (int b = 1; b <= c.blocks; ++b) {
        sequential<T, D> mixing, mapping, block;
        mixing.add("norm", parts.norm({.features = c.embedding_dim}));
        mixing.add("attention", parts.attention({.embedding_dim = c.embedding_dim,
                                                 .heads = c.heads,
                                                 .causal = c.causal,
                                                 .out_gain = out_gain,
                                                 .dropout = c.attention_dropout}));
        with_dropout(mixing);
        mapping.add("norm", parts.norm({.features = c.embedding_dim}));
        mapping.add(
            "in", parts.ffn_in(
                      {.in = c.embedding_dim, .out = hidden, .init = init::xavier_uniform, .bias_init = init::zeros}));
        mapping.add("gelu", gelu<T, D>());
        mapping.add("out", parts.ffn_out({.in = hidden,
                                          .out = c.embedding_dim,
                                          .init = init::xavier_uniform.scaled(out_gain),
                                          .bias_init = init::zeros}));
        with_dropout(mapping);
        block.add("attention", residual<T, D>(std::move(mixing)));
        block.add("mlp", residual<T, D>(std::move(mapping)));
        net.add(concat("block", b), std::move(block));
    }
    net.add("norm", parts.norm({.features = c.embedding_dim}));
    net.add("head", parts.head({.in = c.embedding_dim,
                                .out = c.vocab_size,
                                .bias = false,
                                .init = init::xavier_uniform,
                                .tied_to = c.tied ? "tokens/weight" : ""}));
    return net;
}

/// The same of whole layers.
template <class T = float, Device D = cpu>
sequential<T, D> transformer(const transformer_config& c = {}) {
    return transformer<T, D>(c, transformer_parts<T, D>{});
}

CAIRN_COMPILED_NETWORK(transformer(const transformer_config&))

}  // namespace cairn
