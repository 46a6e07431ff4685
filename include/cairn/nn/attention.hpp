#pragma once
// Multi-head self-attention (Vaswani et al. 2017, sections 3.2.2 and 4):  y = W_o concat_h softmax(Q_h K_hᵀ / √d) V_h +
// b_o, Q, K, V = three parts of one projection W_qkv x + b. It is a chain of three layers, so that curvature,
// recomputation and the memory model see two linear layers like any other. Kernels and formulas:
// device/cpu/attention.hpp.
// Saved by attention: the projection (…, 3 width), the result, a logarithm for each row of each head; never a length ×
// length matrix. Dropout acts on the attention weights (section 5.4 leaves it open; GPT-2 and BERT have it); backward
// draws its mask again. Padded batches give the valid positions of each sequence in pass_context::lengths: the others
// get no attention, and their own results and gradients are 0.

#include <cairn/core/compiled.hpp>
#include <cairn/device/cpu/attention.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// (batch, length, 3 · heads · head_dim), queries, keys and values side by side, → (batch, length, heads · head_dim).
template <class T = float, Device D = cpu>
class attention : public layer_without_parameters<T, D> {
public:
    struct config {
        index_t heads = 1, head_dim = 0;
        bool causal = false;  // a position attends to itself and those before it
        double scale = 0;     // of scores; 0: 1 / √head_dim
        double dropout = 0;   // probability that a weight is dropped in training, in [0, 1)
        // Of a layer cut over ranks: these heads draw their part of the whole layer's dropout mask.
        index_t all_heads = 0, first_head = 0;  // 0: all heads are here
    };

    explicit attention(config c) : config_(c) {
        attention_geometry g = geometry_of({0, 0, 3 * c.heads * c.head_dim});
        g.dropout = c.dropout;
        g.all_heads = c.all_heads;
        g.first_head = c.first_head;
        g.check();
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        const shape out = output_shape(x.shape());
        const attention_geometry g = geometry_of(x.shape(), p);
        tensor<T, D> y(out);
        tensor<S, D> logs;  // (batch, heads, length)
        if (p.training()) logs = tensor<S, D>({g.batch, g.heads, g.length});
        const T* const q = x.data();
        attention_forward(D{}, g, q, q + g.width(), q + 2 * g.width(), y.data(), logs.data());
        if (p.training()) {
            saved.put(input_slot, std::move(x));
            saved.put(output_slot, y.share());
            saved.put_exact(logs_slot, std::move(logs));
        }
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<T, D> x = saved.take(input_slot), y = saved.take(output_slot);
        const tensor<S, D> logs = saved.template take<S>(logs_slot);
        require_shape(dy, y.shape(), "attention: dy");
        if (!p.input_gradient) return {};
        const attention_geometry g = geometry_of(x.shape(), p);
        tensor<T, D> dx(x.shape());
        const T* const q = x.data();
        T* const dq = dx.data();
        attention_backward(D{}, g, q, q + g.width(), q + 2 * g.width(), y.data(), logs.data(), dy.data(), dq,
                           dq + g.width(), dq + 2 * g.width());
        return dx;
    }

    shape output_shape(const shape& in) const {
        const index_t width = config_.heads * config_.head_dim;
        require(in.rank() == 3 && in.back() == 3 * width, describe(), " takes (batch, length, ", 3 * width, "), got ",
                in);
        return in.with(-1, width);
    }

    layer_cost cost(const shape& in) const {
        const attention_geometry g = geometry_of(in);
        layer_cost c;
        c.forward = {g.forward_flops(), g.forward_bytes(sizeof(T), sizeof(S))};
        c.backward_input = {g.backward_flops(), g.backward_bytes(sizeof(T), sizeof(S))};
        c.saved_bytes = block_bytes<S>({g.batch, g.heads, g.length});
        c.saves_input = c.saves_output = true;
        return c;
    }

    std::string describe() const {
        return concat("attention of ", config_.heads, " heads of ", config_.head_dim,
                      config_.all_heads ? concat(", from ", config_.first_head, " on of ", config_.all_heads) : "",
                      config_.causal ? ", causal" : "",
                      config_.dropout > 0 ? concat(", dropout ", config_.dropout) : "");
    }

private:
    using S = weight_of<T>;

    enum slot { input_slot, output_slot, logs_slot };

    attention_geometry geometry_of(const shape& in) const {
        return {.batch = in[0],
                .length = in[1],
                .heads = config_.heads,
                .head_dim = config_.head_dim,
                .causal = config_.causal,
                .scale = config_.scale,
                .stride = 3 * config_.heads * config_.head_dim};
    }

    /// With what this pass brings.
    attention_geometry geometry_of(const shape& in, const pass_context& p) const {
        attention_geometry g = geometry_of(in);
        g.lengths = p.lengths;
        if (!p.training()) return g;
        g.dropout = config_.dropout;
        g.random = p.random.stream();
        g.step = p.random.step_at;
        g.first = p.random.first_sample;
        g.all_heads = config_.all_heads;
        g.first_head = config_.first_head;
        return g;
    }

    config config_;
};

/// Of multi_head_attention().
struct multi_head_attention_config {
    index_t embedding_dim = 0, heads = 1;  // heads divide width
    bool causal = false;
    bool bias = true;
    double out_gain = 1;  // of the variance of W_o; deep residual networks take less
    double dropout = 0;   // of the attention's weights
};

/// The two linear layers of multi_head_attention(). Weights start uniform as Glorot and Bengio's, each of Q, K and V as
/// a map from width to width; biases at 0.
template <class T = float, Device D = cpu>
typename linear<T, D>::config qkv_projection(const multi_head_attention_config& c) {
    return {.in = c.embedding_dim,
            .out = 3 * c.embedding_dim,
            .bias = c.bias,
            // The mean fan of the joint map, width to 3 width, is twice that of one of its three parts.
            .init = init::xavier_uniform.scaled(2),
            .bias_init = init::zeros};
}
template <class T = float, Device D = cpu>
typename linear<T, D>::config out_projection(const multi_head_attention_config& c) {
    return {.in = c.embedding_dim,
            .out = c.embedding_dim,
            .bias = c.bias,
            .init = init::xavier_uniform.scaled(c.out_gain),
            .bias_init = init::zeros};
}

/// (batch, length, width) → the same: layers "qkv", "attention" and "out". Throws where heads do not divide the width.
template <class T = float, Device D = cpu>
sequential<T, D> multi_head_attention(const multi_head_attention_config& c) {
    require(c.embedding_dim > 0 && c.heads > 0 && c.embedding_dim % c.heads == 0, "multi_head_attention: ", c.heads,
            " heads for width ", c.embedding_dim, "; the width must be a multiple of the heads");
    sequential<T, D> layers;
    layers.add("qkv", linear<T, D>(qkv_projection<T, D>(c)));
    layers.add(
        "attention",
        attention<T, D>(
            {.heads = c.heads, .head_dim = c.embedding_dim / c.heads, .causal = c.causal, .dropout = c.dropout}));
    layers.add("out", linear<T, D>(out_projection<T, D>(c)));
    return layers;
}

CAIRN_COMPILED_CLASS(attention)

}  // namespace cairn
