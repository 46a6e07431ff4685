#pragma once
// Vocabulary-parallel lookup (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has the rows V_r of the table,
//   y[i] = Σ_r (id_i ∈ V_r ? table_r[id_i] : 0)      all-reduce, of one number that is not 0: the table's bits
//   dtable_r[id_i] += dy[i]  where id_i ∈ V_r        nothing travels in backward
// Bytes sent by a rank, n of y: 2 (p-1)/p n. Saved: the ids as int32; after backward_input also dy.
// Tested against embedding, on one rank.

#include <cairn/nn/embedding.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

namespace cairn {

/// Ids (…) below the vocabulary, the same on each rank → their vectors (…, width), the same on each rank.
template <Communicator C, class T = float, Device D = cpu>
class vocabulary_embedding {
public:
    using value_type = T;
    using device = D;
    using config = typename embedding<T, D>::config;

    vocabulary_embedding(tensor_axis<C>& axis, config c) : axis_(&axis), config_(c), entries_(c.num_embeddings) {
        embedding<T, D> whole(c);  // which checks the sizes
        const auto& table = *whole.parameters().front().p;
        entries_.here = axis.part_of(
            c.num_embeddings, concat("vocabulary_embedding ", c.num_embeddings, " x ", c.embedding_dim, ": entries"));
        table_.shape = {entries_.here.count, c.embedding_dim};
        table_.init = table.init;
        table_.layout.global = table.shape;
        table_.layout.begin[0] = entries_.here.begin;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_memory(*this, table_);
        tensor<std::int32_t, D> ids = ids_of(x, config_.num_embeddings, [this] { return describe(); });
        tensor<W, D> y(output_shape(x.shape()), before_cast<T, W>);
        embedding_forward(D{}, ids.size(), entries_, config_.embedding_dim, ids.data(), table_.value.data(), y.data());
        axis_->sum(y, "output of vocabulary_embedding");
        if (p.training()) saved.put(0, std::move(ids));
        return cast<T>(std::move(y));
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context&) {
        require_shape(dy, output_shape(saved.template get<std::int32_t>(0).shape()), "vocabulary_embedding: dy");
        saved.put_exact(1, std::move(dy));
        return {};
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        const tensor<std::int32_t, D> ids = saved.template take<std::int32_t>(0);
        const tensor<T, D> dy = saved.take(1);
        if (!p.weight_gradient) return;
        embedding_backward(D{}, ids.size(), entries_, config_.embedding_dim, ids.data(), dy.data(), table_.grad.data());
    }

    layer_parameters<T, D> parameters() { return {{"weight", &table_}}; }

    shape output_shape(const shape& in) const {
        shape out = in;
        out.push_back(config_.embedding_dim);
        return out;
    }

    /// As if all ids were of this rank.
    layer_cost cost(const shape& in) const {
        layer_cost c = embedding<T, D>(config_).cost(in);
        c.parameters = table_.shape.size();
        return c;
    }

    std::string describe() const {
        return concat("vocabulary_embedding ", config_.num_embeddings, " x ", config_.embedding_dim, ", rank ",
                      axis_->rank(), " of ", axis_->size());
    }

private:
    using W = weight_of<T>;

    tensor_axis<C>* axis_;
    config config_;
    array_part entries_;  // of all ranks, and of this one
    layer_parameter<T, D> table_;
};

}  // namespace cairn
