#pragma once
// Learned positions (Gehring et al. 2017):  y[n, l, :] = x[n, l, :] + table[l, :],   x (batch, length ≤ longest, width)
//   dx = dy      dtable[l] += Σ_n dy[n, l]
// Saved: after backward_input dy. y overwrites x if x has no other owner.

#include <cairn/core/compiled.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/device/cpu/rows.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/layer.hpp>

namespace cairn {

/// Adds a learned vector to each position.
template <class T = float, Device D = cpu>
class positional_embedding {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t max_length = 0, embedding_dim = 0;
        double deviation = 0.02;  // of the normal distribution that the table starts from
    };

    explicit positional_embedding(config c) : config_(c) {
        require(c.max_length > 0 && c.embedding_dim > 0, "positions ", c.max_length, " x ", c.embedding_dim,
                ": both sizes must be positive");
        table_.shape = {c.max_length, c.embedding_dim};
        table_.init = {initializer::distribution::normal, c.deviation, 0};
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>&, const pass_context&) {
        require_memory(*this, table_);
        const shape s = output_shape(x.shape());
        tensor<T, D> y = x.unique() ? std::move(x) : x.clone();
        if (y.size() > 0) add_to_rows(D{}, s[0], s[1] * s[2], cast<T>(table_.value).data(), y.data());
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        output_shape(dy.shape());
        saved.put_exact(0, dy.share());
        return dy;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) { add_gradient(saved.take(0), p); }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>&, const pass_context& p) {
        output_shape(dy.shape());
        add_gradient(dy, p);
        return dy;
    }

    layer_parameters<T, D> parameters() { return {{"weight", &table_}}; }

    shape output_shape(const shape& in) const {
        require(in.rank() == 3 && in[1] <= config_.max_length && in[2] == config_.embedding_dim, describe(),
                " takes (batch, length, ", config_.embedding_dim, ") with length up to ", config_.max_length, ", got ",
                in);
        return in;
    }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()), size = sizeof(T), table = double(in[1] * in[2]);
        layer_cost c;
        c.forward = {n, size * (2 * n + table)};
        c.forward += cast_cost<T, weight_of<T>>(double(table_.shape.size()));
        c.backward_weight = {n, size * n};
        c.parameters = config_.max_length * config_.embedding_dim;
        c.in_place_forward = c.in_place_backward = true;
        c.weight_gradient_first = true;
        return c;
    }

    std::string describe() const { return concat("positions ", config_.max_length, " x ", config_.embedding_dim); }

private:
    void add_gradient(const tensor<T, D>& dy, const pass_context& p) {
        if (p.weight_gradient && dy.size() > 0)
            column_sums(D{}, dy.extent(0), dy.extent(1) * dy.extent(2), dy.data(), table_.grad.data(), true);
    }

    config config_;
    layer_parameter<T, D> table_;
};

CAIRN_COMPILED_CLASS(positional_embedding)

}  // namespace cairn
