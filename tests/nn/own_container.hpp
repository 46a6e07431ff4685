#pragma once
// Containers as a user of the library writes them: nothing but the members of a layer, and children().

#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/sequential.hpp>

#include <utility>
#include <vector>

namespace cairn::own {

/// y = left(x) + right(x), or (left(x) | right(x)).
template <combination how, class T = float, Device D = cpu>
class two_ways {
public:
    using value_type = T;
    using device = D;

    two_ways(sequential<T, D> left, sequential<T, D> right) : left_(std::move(left)), right_(std::move(right)) {}

    layer_children<T, D> children() { return {how, {{"left", &left_}, {"right", &right_}}}; }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, left_.output_shape(x.shape())));
        tensor<T, D> r = right_.forward(x.share(), saved.child(1, "right"), p.child("right"));
        tensor<T, D> l = left_.forward(std::move(x), saved.child(0, "left"), p.child("left"));
        if (how == combination::sum) return add(std::move(l), std::move(r));
        std::vector<tensor<T, D>> both;
        both.push_back(std::move(l));
        both.push_back(std::move(r));
        return join_channels(both);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return through(std::move(dy), saved, [&](auto& chain, tensor<T, D> d, int i, const char* name) {
            return chain.backward_input(std::move(d), saved.child(i), p.child(name));
        });
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return through(std::move(dy), saved, [&](auto& chain, tensor<T, D> d, int i, const char* name) {
            return chain.backward(std::move(d), saved.child(i), p.child(name));
        });
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        left_.backward_weight(saved.child(0), p.child("left"));
        right_.backward_weight(saved.child(1), p.child("right"));
    }
    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        append_prefixed(all, "left", left_.parameters());
        append_prefixed(all, "right", right_.parameters());
        return all;
    }
    shape output_shape(const shape& in) const {
        const shape l = left_.output_shape(in), r = right_.output_shape(in);
        return how == combination::sum ? l : l.with(-1, l.back() + r.back());
    }
    layer_cost cost(const shape& in) const {
        layer_cost c;
        const double bytes = sizeof(T), x = double(in.size()), y = double(output_shape(in).size());
        for (const auto* chain : {&left_, &right_}) {
            const layer_cost of = chain->cost(in);
            c.add_work(of);
            c.saved_bytes += of.saved_bytes + (of.saves_output ? block_bytes<T>(chain->output_shape(in)) : 0);
            c.saves_input = c.saves_input || of.saves_input;
        }
        if (how == combination::sum)
            c.forward += {y, 3 * bytes * y};
        else  // joined, and the gradient cut again
            c.forward += {0, 2 * bytes * y}, c.backward_input += {0, 2 * bytes * y};
        c.backward_input += {x, 3 * bytes * x};
        return c;
    }
    std::string describe() const { return "two ways"; }

private:
    template <class Backward>
    tensor<T, D> through(tensor<T, D> dy, saved_tensors<T, D>& saved, Backward&& of) {
        const index_t width = saved.take(0).shape().back();
        tensor<T, D> l, r;
        if (how == combination::sum) {
            l = dy.share();
            r = std::move(dy);
        } else {
            l = cut_channels(dy, 0, width);
            r = cut_channels(dy, width, dy.extent(-1) - width);
            dy.reset();
        }
        tensor<T, D> dx = of(left_, std::move(l), 0, "left");
        return add(std::move(dx), of(right_, std::move(r), 1, "right"));
    }

    sequential<T, D> left_, right_;
};

/// A chain under a name of its own.
template <class T = float, Device D = cpu>
class boxed {
public:
    using value_type = T;
    using device = D;

    explicit boxed(sequential<T, D> inside) : inside_(std::move(inside)) {}

    layer_children<T, D> children() { return {combination::chain, {{"box", &inside_}}}; }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return inside_.forward(std::move(x), saved.child(0, "box"), p.child("box"));
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return inside_.backward_input(std::move(dy), saved.child(0), p.child("box"));
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        inside_.backward_weight(saved.child(0), p.child("box"));
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return inside_.backward(std::move(dy), saved.child(0), p.child("box"));
    }
    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        append_prefixed(all, "box", inside_.parameters());
        return all;
    }
    shape output_shape(const shape& in) const { return inside_.output_shape(in); }
    layer_cost cost(const shape& in) const { return inside_.cost(in); }
    std::string describe() const { return "boxed"; }

private:
    sequential<T, D> inside_;
};

}  // namespace cairn::own
