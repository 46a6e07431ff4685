#pragma once
// Sequence parallelism (Korthikanti et al. 2022, "Reducing activation recomputation in large transformer models",
// section 4.2.2): between the layers whose matrices are cut, each rank has 1/p of the positions, axis 1 of (batch,
// length, width), so that norms, dropout and what they save cost 1/p.
//   sequence_part<L>    L on this rank's positions. Its parameters are the same on each rank; their gradients are
//                       summed over the ranks: 2 (p-1)/p bytes of them, a micro-batch
//   sequence_cut<L>     L on whole sequences, of whose result each rank keeps its part; backward gathers the gradient
//   sequence_dropout    the mask that one rank draws for the whole: by the element of the whole batch
// Tested against the same layers on one rank.

#include <cairn/core/for_each.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/parallel/tensor/tensor_axis.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {

/// Each parameter of a layer is the same on every rank of the tensor axis.
template <Layer L>
void replicate_parameters(L& layer) {
    for (auto& [name, p] : layer.parameters()) p->layout.replicated_over = {"tensor"};
}

/// See the top of the file. L treats positions alike, each by itself (layer_norm).
template <Communicator C, Layer L>
class sequence_part {
public:
    using value_type = typename L::value_type;
    using device = typename L::device;
    using T = value_type;
    using D = device;

    sequence_part(tensor_axis<C>& axis, L layer) : axis_(&axis), inner_(std::move(layer)) {
        replicate_parameters(inner_);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return inner_.forward(std::move(x), saved, p);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return inner_.backward_input(std::move(dy), saved, p);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        if (axis_->size() == 1 || !p.weight_gradient) return inner_.backward_weight(saved, p);
        // This micro-batch's alone are summed: those before it are sums already.
        std::vector<tensor<W, D>> before;
        index_t count = 0;
        for (const auto& [name, q] : inner_.parameters()) {
            before.push_back(q->grad.clone(memory_category::workspace));
            for_each(D{}, q->grad.size(), functors::assign<W>{W(0)}, q->grad.data());
            count += q->grad.size();
        }
        inner_.backward_weight(saved, p);
        tensor<W, D> all({count}, memory_category::workspace);  // in one message
        index_t at = 0;
        for (const auto& [name, q] : inner_.parameters()) {
            for_each(D{}, q->grad.size(), functors::convert<W, W>{}, all.data() + at, q->grad.data());
            at += q->grad.size();
        }
        axis_->sum(all, "gradients of a sequence's parts");
        at = 0;
        std::size_t i = 0;
        for (const auto& [name, q] : inner_.parameters()) {
            for_each(D{}, q->grad.size(), functors::convert<W, W>{}, q->grad.data(), before[i++].data());
            for_each(D{}, q->grad.size(), functors::add{}, q->grad.data(), all.data() + at);
            at += q->grad.size();
        }
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }
    shape output_shape(const shape& in) const { return inner_.output_shape(in); }
    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(in);
        c.backward_weight.sends.tensor = axis_->template sum_sends<W>(c.parameters);
        return c;
    }
    std::string describe() const { return inner_.describe() + " of a part of the positions"; }

private:
    using W = weight_of<T>;

    tensor_axis<C>* axis_;
    L inner_;
};

/// See the top of the file.
template <Communicator C, Layer L>
class sequence_cut {
public:
    using value_type = typename L::value_type;
    using device = typename L::device;
    using T = value_type;
    using D = device;

    sequence_cut(tensor_axis<C>& axis, L layer) : axis_(&axis), inner_(std::move(layer)) {
        replicate_parameters(inner_);
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        return axis_->cut(inner_.forward(std::move(x), saved, p), 1);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return inner_.backward_input(whole(std::move(dy)), saved, p);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) { inner_.backward_weight(saved, p); }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return cairn::backward(inner_, whole(std::move(dy)), saved, p);
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }
    shape output_shape(const shape& in) const {
        const shape out = inner_.output_shape(in);
        require(out.rank() >= 2, describe(), " takes (batch, length, ...), got ", in);
        require_equal_parts(out[1], axis_->size());
        return axis_->part_shape(out, 1);
    }
    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(in);
        c.backward_input.sends.tensor = axis_->template gather_sends<T>(inner_.output_shape(in), 1);
        return c;
    }
    std::string describe() const { return inner_.describe() + ", cut by positions"; }

private:
    tensor<T, D> whole(tensor<T, D> dy) {
        return axis_->gather(dy, 1, whole_length(dy.extent(1), axis_->size()), "gradient of a cut sequence");
    }

    tensor_axis<C>* axis_;
    L inner_;
};

/// See the top of the file. Of (batch, part of length, …).
template <class T = float, Device D = cpu, Communicator C>
dropout<T, D> sequence_dropout(const tensor_axis<C>& axis, double rate) {
    return dropout<T, D>(
        rate, [ranks = axis.size(), rank = axis.rank()](const shape& s, const pass_context& p, const auto& run) {
            const index_t here = s.size() / std::max<index_t>(s.front(), 1), whole = here * ranks;  // of a sample
            for (index_t n = 0; n < s.front(); ++n)
                run((p.random.first_sample + n) * whole + here * rank, n * here, here);
        });
}

}  // namespace cairn
