#pragma once
// Transformer-XL (Dai et al. 2019): the language model of models/transformer.hpp, whose attention sees the segments
// before and counts distances in place of positions (nn/relative_attention.hpp):
//   x ← x + W_o relative_attention(norm(x)),   x ← x + W₂ gelu(W₁ norm(x) + b₁) + b₂
// There is no table of positions. With the normalisation in front, the memory holds norm(x), as it was then.
// Weights start as those of models/transformer.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/models/transformer.hpp>
#include <cairn/nn/relative_attention.hpp>

namespace cairn {

struct transformer_xl_config {
    index_t vocab_size = 256;  // token numbers are below it
    index_t embedding_dim = 128;
    index_t heads = 4;  // divide embedding_dim
    int blocks = 4;
    index_t ffn_dim = 0;  // of the two maps after attention; 0: 4 embedding_dim
    double dropout = 0;   // behind the embedding and at the end of each branch; 0: none
    bool tied = false;    // the head's matrix is that of "tokens"
    index_t memory = 0;   // positions, in training
};

/// Token numbers (batch, length) → logits (batch, length, vocabulary). Layers "tokens", "block1" …, "norm", "head".
template <class T = float, Device D = cpu>
sequential<T, D> transformer_xl(const transformer_xl_config& c = {}) {
    require(c.blocks >= 1, "transformer-xl: ", c.blocks, " blocks; at least one is needed");
    const index_t width = c.embedding_dim, hidden = c.ffn_dim ? c.ffn_dim : 4 * width;
    const init_rule usual = init::xavier_uniform, ends = usual.scaled(0.5 / c.blocks);
    const auto with_dropout = [&](sequential<T, D>& chain) {
        if (c.dropout > 0) chain.add("dropout", dropout<T, D>(c.dropout));
    };
    const auto map = [](index_t in, index_t out, const init_rule& rule) {
        return linear<T, D>({.in = in, .out = out, .init = rule, .bias_init = init::zeros});
    };
    sequential<T, D> net;
    net.add("tokens", embedding<T, D>(
                          {.num_embeddings = c.vocab_size, .embedding_dim = width, .deviation = 0.02, .tied = c.tied}));
    with_dropout(net);
    for (int b = 1; b <= c.blocks; ++b) {
        sequential<T, D> mixing, mapping, block;
        mixing.add("norm", layer_norm<T, D>({.features = width}));
        mixing.add("attention",
                   relative_attention<T, D>({.embedding_dim = width, .heads = c.heads, .memory = c.memory}));
        mixing.add("out", map(width, width, ends));
        with_dropout(mixing);
        mapping.add("norm", layer_norm<T, D>({.features = width}));
        mapping.add("in", map(width, hidden, usual));
        mapping.add("gelu", gelu<T, D>());
        mapping.add("out", map(hidden, width, ends));
        with_dropout(mapping);
        block.add("attention", residual<T, D>(std::move(mixing)));
        block.add("mlp", residual<T, D>(std::move(mapping)));
        net.add(concat("block", b), std::move(block));
    }
    net.add("norm", layer_norm<T, D>({.features = width}));
    net.add("head", linear<T, D>({.in = width,
                                  .out = c.vocab_size,
                                  .bias = false,
                                  .init = usual,
                                  .tied_to = c.tied ? "tokens/weight" : ""}));
    return net;
}

CAIRN_COMPILED_NETWORK(transformer_xl(const transformer_xl_config&))

}  // namespace cairn
