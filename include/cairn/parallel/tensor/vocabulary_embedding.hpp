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
class vocabulary_embedding : public embedding<T, D> {
    using whole = embedding<T, D>;

public:
    using config = typename whole::config;

    vocabulary_embedding(tensor_axis<C>& axis, config c) : whole(c), axis_(&axis) {
        this->config_.tied = true;  // announces no rows: each rank has some of them
        this->entries_.here = axis.part_of(c.num_embeddings, concat("vocabulary_", whole::describe(), ": entries"));
        auto& table = this->table_;
        table.shape = {this->entries_.here.count, c.embedding_dim};
        table.layout.global = {c.num_embeddings, c.embedding_dim};
        table.layout.begin[0] = this->entries_.here.begin;
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        auto y = this->look_up(x, saved, p);
        axis_->sum(y, "output of vocabulary_embedding");
        return cast<T>(std::move(y));
    }

    /// As if all ids were of this rank.
    layer_cost cost(const shape& in) const {
        layer_cost c = whole::cost(in);
        c.parameters = this->table_.shape.size();
        c.forward.sends.tensor = axis_->template sum_sends<weight_of<T>>(this->output_shape(in).size());
        return c;
    }

    std::string describe() const {
        return concat("vocabulary_", whole::describe(), ", rank ", axis_->rank(), " of ", axis_->size());
    }

private:
    tensor_axis<C>* axis_;
};

}  // namespace cairn
