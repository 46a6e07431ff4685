#pragma once
// Lookup of trained vectors:  y[…] = table[x[…]],   x (…) holds whole numbers in [0, entries), y (…, width).
// Ids travel as numbers of type T, which float holds exactly up to 2^24, float16 up to 2^11, bfloat16 up to 2^8. They
// have no gradient: backward_input returns an empty tensor. Saved: the ids as int32; after backward_input also dy.
// Kernels: device/cpu/embedding.hpp.

#include <cairn/core/compiled.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/embedding.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/layer.hpp>

#include <cmath>
#include <concepts>

namespace cairn {

namespace functors {

/// A number as an id in [0, entries); −1, which looks up NaN, for any other number.
template <class T>
struct to_id {
    weight_of<T> entries;
    CAIRN_HD void operator()(T number, std::int32_t& id) const {
        const auto x = static_cast<weight_of<T>>(number);
        id = x >= 0 && x < entries && x == std::floor(x) ? static_cast<std::int32_t>(x) : -1;
    }
};

}  // namespace functors

/// Numbers as ids in [0, entries). Another number is an error on the host, naming `layer`, number and row; on other
/// devices it becomes −1.
template <class T, Device D, class Describe>
tensor<std::int32_t, D> ids_of(const tensor<T, D>& x, index_t entries, Describe&& layer) {
    tensor<std::int32_t, D> ids(x.shape());
    for_each(D{}, x.size(), functors::to_id<T>{static_cast<weight_of<T>>(entries)}, x.data(), ids.data());
    if constexpr (std::same_as<D, cpu>)  // to look at ids of a device is to wait for it
        for (index_t i = 0; i < x.size() && !on_phantom_rank(); ++i)
            if (ids[i] < 0) fail(layer(), ": id ", x[i], " of row ", i, " is not a whole number in [0, ", entries, ')');
    return ids;
}

/// Table of `entries` vectors of length `width`; starts standard normal.
template <class T = float, Device D = cpu>
class embedding {
public:
    using value_type = T;
    using device = D;

    struct config {
        index_t num_embeddings = 0, embedding_dim = 0;
        double deviation = 1;  // of the normal distribution that the table starts from
        bool tied = false;     // another layer is tied to the table: no rows for K-FAC, which has one layer per weight
    };

    explicit embedding(config c) : config_(c), entries_(c.num_embeddings) {
        require(c.num_embeddings > 0 && c.embedding_dim > 0, "embedding ", c.num_embeddings, " x ", c.embedding_dim,
                ": both sizes must be positive");
        constexpr index_t most = index_t{1} << (std::same_as<T, float16> ? 11
                                                : sizeof(T) == 2         ? 8
                                                : sizeof(T) == 4         ? 24
                                                                         : 31);
        require(c.num_embeddings <= most, "embedding: ", c.num_embeddings,
                " entries; ids of this element type are exact up to ", most);
        table_.shape = {c.num_embeddings, c.embedding_dim};
        table_.init = {initializer::distribution::normal, c.deviation, 0};
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return cast<T>(look_up(x, saved, p));
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        require_shape(dy, output_shape(saved.template get<std::int32_t>(0).shape()), "embedding: dy");
        saved.put_exact(1, std::move(dy));
        return {};
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<std::int32_t, D> ids = saved.template take<std::int32_t>(0);
        const tensor<T, D> dy = saved.take(1);
        if (!config_.tied) announce(p.curvature, samples(ids).output_gradient(dy.data()));
        if (!p.weight_gradient) return;
        embedding_backward(D{}, ids.size(), entries_, config_.embedding_dim, ids.data(), dy.data(), table_.grad.data());
    }

    layer_parameters<T, D> parameters() { return {{"weight", &table_}}; }

    shape output_shape(const shape& in) const {
        shape out = in;
        out.push_back(config_.embedding_dim);
        return out;
    }

    layer_cost cost(const shape& in) const {
        const double n = double(in.size()) * double(config_.embedding_dim), size = sizeof(W);
        layer_cost c;
        c.forward = {2 * double(in.size()), 2 * size * n + (sizeof(T) + 4.0) * double(in.size())};  // with ids_of
        c.forward += cast_cost<T, W>(n);
        c.backward_weight = {n, (sizeof(T) + 2 * size) * n};
        c.parameters = config_.num_embeddings * config_.embedding_dim;
        c.saved_bytes = block_bytes(in.size() * 4);
        c.weight_gradient_first = true;  // there is no input gradient
        return c;
    }

    std::string describe() const { return concat("embedding ", config_.num_embeddings, " x ", config_.embedding_dim); }

protected:
    using W = weight_of<T>;

    /// (…, width): zeros for entries that are elsewhere.
    tensor<W, D> look_up(const tensor<T, D>& x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, table_);
        tensor<W, D> y(output_shape(x.shape()), before_cast<T, W>);
        tensor<std::int32_t, D> ids = ids_of(x, config_.num_embeddings, [this] { return describe(); });
        embedding_forward(D{}, ids.size(), entries_, config_.embedding_dim, ids.data(), table_.value.data(), y.data());
        if (!config_.tied) announce(p.curvature, samples(ids));
        if (p.training()) saved.put(0, std::move(ids));
        return y;
    }

    config config_;
    array_part entries_;  // of the table, and those that are here (parallel/tensor/vocabulary_embedding.hpp)
    layer_parameter<T, D> table_;

private:
    curvature_samples<T> samples(const tensor<std::int32_t, D>& ids) const {
        const index_t examples = ids.extent(0);
        return {.kind = rows_kind::lookup,
                .weight = table_.id,
                .examples = examples,
                .positions = examples ? ids.size() / examples : 1,
                .in = config_.num_embeddings,
                .out = config_.embedding_dim,
                .ids = ids.data()};
    }
};

CAIRN_COMPILED_CLASS(embedding)

}  // namespace cairn
