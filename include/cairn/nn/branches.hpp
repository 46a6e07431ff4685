#pragma once
// Several chains that read the same input.
//   branches  y = (b1(x) | b2(x) | …), joined on channels: Inception, pyramid pooling
//   summed    y = b1(x) + b2(x) + …
// The gradient of x is the sum over the branches, added in place in their order.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

namespace detail {

/// What both kinds have in common.
template <class T, Device D>
class branch_list {
public:
    using value_type = T;
    using device = D;

    explicit branch_list(std::vector<sequential<T, D>> chains) : chains_(std::move(chains)) {
        require(!chains_.empty(), "branches: none given");
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = 0; i < size(); ++i) (*this)[i].backward_weight(saved.child(i), p.child(name(i)));
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        for (int i = 0; i < size(); ++i) append_prefixed(all, name(i), (*this)[i].parameters());
        return all;
    }

    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all;
        for (int i = 0; i < size(); ++i) append_prefixed(all, name(i), (*this)[i].buffers());
        return all;
    }

    int size() const { return static_cast<int>(chains_.size()); }
    sequential<T, D>& operator[](int i) { return chains_[static_cast<std::size_t>(i)]; }
    const sequential<T, D>& operator[](int i) const { return chains_[static_cast<std::size_t>(i)]; }
    static std::string name(int i) { return "branch" + std::to_string(i); }

protected:
    // All results of the branches on x, in order.
    std::vector<tensor<T, D>> forward_all(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        std::vector<tensor<T, D>> results;
        for (int i = 0; i < size(); ++i)
            results.push_back((*this)[i].forward(x.share(), saved.child(i, name(i)), p.child(name(i))));
        return results;
    }

    // Sum of backward_of(i), the gradient of x through branch i.
    template <class BackwardOf>
    tensor<T, D> add_all(BackwardOf&& backward_of) {
        tensor<T, D> dx = backward_of(0);
        for (int i = 1; i < size(); ++i) dx = add(std::move(dx), backward_of(i));
        return dx;
    }

    // Costs of all branches saved together; their outputs are blocks of their own, which join or sum do not keep.
    layer_cost total_cost(const shape& in) const {
        layer_cost total;
        const double size = sizeof(T), n = double(in.size()), additions = double(chains_.size() - 1);
        for (const auto& chain : chains_) {
            const layer_cost c = chain.cost(in);
            total.forward += c.forward;
            total.backward_input += c.backward_input;
            total.backward_weight += c.backward_weight;
            total.parameters += c.parameters;
            total.saved_bytes += c.saved_bytes;
            total.saves_input = total.saves_input || c.saves_input;
            if (c.saves_output) total.saved_bytes += block_bytes<T>(chain.output_shape(in));
        }
        total.backward_input += {additions * n, additions * 3 * size * n};
        return total;
    }

private:
    std::vector<sequential<T, D>> chains_;
};

}  // namespace detail

/// Chains side by side, results joined on the last axis.
template <class T = float, Device D = cpu>
class concat_branches : public detail::branch_list<T, D> {
public:
    using detail::branch_list<T, D>::branch_list;

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        if (p.training()) {  // the widths, to cut the gradient again
            for (int i = 0; i < this->size(); ++i)
                saved.put(i, tensor<T, D>::view(nullptr, (*this)[i].output_shape(x.shape())));
        }
        return join_channels(this->forward_all(std::move(x), saved, p));
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(dy, saved, [&](int i, tensor<T, D> part) {
            return (*this)[i].backward_input(std::move(part), saved.child(i), p.child(this->name(i)));
        });
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(dy, saved, [&](int i, tensor<T, D> part) {
            return (*this)[i].backward(std::move(part), saved.child(i), p.child(this->name(i)));
        });
    }

    shape output_shape(const shape& in) const {
        shape out = (*this)[0].output_shape(in);
        for (int i = 1; i < this->size(); ++i) {
            const shape other = (*this)[i].output_shape(in);
            require(other.rank() == out.rank() && other.with(-1, 0) == out.with(-1, 0), "branches: from ", in,
                    " branch 0 makes ", (*this)[0].output_shape(in), ", branch ", i, ' ', other,
                    "; all axes but the last must agree");
            out = out.with(-1, out.back() + other.back());
        }
        return out;
    }

    layer_cost cost(const shape& in) const { return this->total_cost(in); }

    std::string describe() const { return concat(this->size(), " branches"); }

private:
    template <class Backward>
    tensor<T, D> backward_with(const tensor<T, D>& dy, saved_tensors<T, D>& saved, Backward&& run) {
        index_t at = 0;
        return this->add_all([&](int i) {
            const index_t width = saved.take(i).shape().back(), begin = std::exchange(at, at + width);
            return run(i, cut_channels(dy, begin, width));
        });
    }
};

/// Chains side by side, results added.
template <class T = float, Device D = cpu>
class add_branches : public detail::branch_list<T, D> {
public:
    using detail::branch_list<T, D>::branch_list;

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        tensor<T, D> y = (*this)[0].forward(x.share(), saved.child(0, this->name(0)), p.child(this->name(0)));
        for (int i = 1; i < this->size(); ++i)
            y = add(std::move(y), (*this)[i].forward(x.share(), saved.child(i, this->name(i)), p.child(this->name(i))));
        return y;
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return this->add_all(
            [&](int i) { return (*this)[i].backward_input(dy.share(), saved.child(i), p.child(this->name(i))); });
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return this->add_all(
            [&](int i) { return (*this)[i].backward(dy.share(), saved.child(i), p.child(this->name(i))); });
    }

    shape output_shape(const shape& in) const {
        const shape out = (*this)[0].output_shape(in);
        for (int i = 1; i < this->size(); ++i) {
            const shape other = (*this)[i].output_shape(in);
            require(other == out, "summed: from ", in, " branch 0 makes ", out, ", branch ", i, ' ', other,
                    "; they must agree");
        }
        return out;
    }

    layer_cost cost(const shape& in) const {
        layer_cost c = this->total_cost(in);
        const double additions = double(this->size() - 1), y = double(output_shape(in).size());
        c.forward += {additions * y, additions * 3 * sizeof(T) * y};
        return c;
    }

    std::string describe() const { return concat("sum of ", this->size()); }
};

CAIRN_COMPILED_CLASS(concat_branches)
CAIRN_COMPILED_CLASS(add_branches)

}  // namespace cairn
