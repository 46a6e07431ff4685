#pragma once
// Vocabulary-parallel lookup (Shoeybi et al. 2019, "Megatron-LM", section 3): rank r has the rows V_r of the table,
//   y[i] = Σ_r (id_i ∈ V_r ? table_r[id_i] : 0)      all-reduce, of one number that is not 0: the table's bits
//   dtable_r[id_i] += dy[i]  where id_i ∈ V_r        nothing travels in backward
// Bytes sent by a rank, n of y: 2 (p-1)/p n. Saved: the ids as int32; after backward_input also dy.
// Tested against embedding, on one rank. On the host.

#include <cairn/device/cpu/embedding.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

#include <algorithm>
#include <cmath>

namespace cairn {

/// Ids (…) below the vocabulary, the same on each rank → their vectors (…, width), the same on each rank.
template <Communicator C, class T = float>
class vocabulary_embedding {
public:
    using value_type = T;
    using device = cpu;
    using config = typename embedding<T>::config;

    vocabulary_embedding(tensor_axis<C>& axis, config c) : axis_(&axis), config_(c) {
        embedding<T> whole(c);  // which checks the sizes
        const auto& table = *whole.parameters().front().p;
        here_ = axis.part_of(c.num_embeddings,
                             concat("vocabulary_embedding ", c.num_embeddings, " x ", c.embedding_dim, ": entries"));
        table_.shape = {here_.count, c.embedding_dim};
        table_.init = table.init;
        table_.layout.global = table.shape;
        table_.layout.begin[0] = here_.begin;
    }

    tensor<T> forward(tensor<T> x, saved_tensors<T>& saved, const pass_context& p) {
        require(!table_.value.empty(), describe(),
                ": parameters have no memory; make an arena of the model's parameters() first");
        tensor<std::int32_t> ids(x.shape());
        for (index_t i = 0; i < x.size(); ++i) {
            require(x[i] >= T(0) && x[i] < static_cast<W>(config_.num_embeddings) && x[i] == std::floor(x[i]),
                    describe(), ": id ", x[i], " of row ", i, " is not a whole number in [0, ", config_.num_embeddings,
                    ')');
            ids[i] = static_cast<std::int32_t>(x[i]);
        }
        const rows_here r(ids, here_);
        const index_t width = config_.embedding_dim;
        tensor<W> found({r.count, width}, memory_category::workspace);
        embedding_forward(cpu{}, r.count, here_.count, width, r.ids.data(), table_.value.data(), found.data());
        tensor<W> y(output_shape(x.shape()), before_cast<T, W>);
        if (r.count < ids.size()) std::fill_n(y.data(), y.size(), W(0));
        for (index_t i = 0; i < r.count; ++i)
            std::copy_n(found.data() + i * width, width, y.data() + r.rows[i] * width);
        axis_->sum(y, "output of vocabulary_embedding");
        if (p.training()) saved.put(0, std::move(ids));
        return cast<T>(std::move(y));
    }

    tensor<T> backward_input(tensor<T> dy, saved_tensors<T>& saved, const pass_context&) {
        require_shape(dy, output_shape(saved.template get<std::int32_t>(0).shape()), "vocabulary_embedding: dy");
        saved.put_exact(1, std::move(dy));
        return {};
    }

    void backward_weight(saved_tensors<T>& saved, const pass_context& p) {
        const tensor<std::int32_t> ids = saved.template take<std::int32_t>(0);
        const tensor<T> given = saved.take(1);
        const tensor<W> dy = cast<W>(given);
        if (!p.weight_gradient) return;
        const rows_here r(ids, here_);
        const index_t width = config_.embedding_dim;
        tensor<W> theirs({r.count, width}, memory_category::workspace);
        for (index_t i = 0; i < r.count; ++i)
            std::copy_n(dy.data() + r.rows[i] * width, width, theirs.data() + i * width);
        embedding_backward(cpu{}, r.count, here_.count, width, r.ids.data(), theirs.data(), table_.grad.data());
    }

    layer_parameters<T> parameters() { return {{"weight", &table_}}; }

    shape output_shape(const shape& in) const {
        shape out = in;
        out.push_back(config_.embedding_dim);
        return out;
    }

    /// As if all ids were of this rank.
    layer_cost cost(const shape& in) const {
        layer_cost c = embedding<T>(config_).cost(in);
        c.parameters = table_.shape.size();
        return c;
    }

    std::string describe() const {
        return concat("vocabulary_embedding ", config_.num_embeddings, " x ", config_.embedding_dim, ", rank ",
                      axis_->rank(), " of ", axis_->size());
    }

private:
    using W = weight_of<T>;

    /// The rows whose ids are of this rank, and those ids counted from its first.
    struct rows_here {
        rows_here(const tensor<std::int32_t>& all, range here)
            : rows({all.size()}, memory_category::workspace), ids({all.size()}, memory_category::workspace) {
            for (index_t i = 0; i < all.size(); ++i) {
                if (all[i] < here.begin || all[i] >= here.end()) continue;
                rows[count] = static_cast<std::int32_t>(i);
                ids[count++] = all[i] - static_cast<std::int32_t>(here.begin);
            }
        }
        tensor<std::int32_t> rows, ids;
        index_t count = 0;
    };

    tensor_axis<C>* axis_;
    config config_;
    range here_;
    layer_parameter<T> table_;
};

}  // namespace cairn
