#pragma once
// U-Net's long skip (Ronneberger et al. 2015):  y = (x | inner(x)), joined on channels. `inner` goes down a level and
// comes back up to the size of x; nested skips are the U.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// x and what the inner chain makes of it, side by side.
template <class T = float, Device D = cpu>
class concat_skip {
public:
    using value_type = T;
    using device = D;

    explicit concat_skip(sequential<T, D> inner) : inner_(std::move(inner)) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        if (p.training()) saved.put(0, tensor<T, D>::view(nullptr, x.shape()));  // the width, to cut the gradient again
        std::vector<tensor<T, D>> parts;
        parts.push_back(x.share());
        parts.push_back(inner_.forward(std::move(x), saved.child(0, ""), p));
        return join_channels(parts);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(std::move(dy), saved,
                             [&](tensor<T, D> d) { return inner_.backward_input(std::move(d), saved.child(0), p); });
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        inner_.backward_weight(saved.child(0), p);
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(std::move(dy), saved,
                             [&](tensor<T, D> d) { return inner_.backward(std::move(d), saved.child(0), p); });
    }

    layer_parameters<T, D> parameters() { return inner_.parameters(); }
    layer_buffers<T, D> buffers() { return inner_.buffers(); }

    shape output_shape(const shape& in) const {
        const shape inner = inner_.output_shape(in);
        require(inner.rank() == in.rank() && inner.with(-1, 0) == in.with(-1, 0), "skip: from ", in,
                " the inner chain makes ", inner, "; all axes but the last must agree");
        return in.with(-1, in.back() + inner.back());
    }

    layer_cost cost(const shape& in) const {
        layer_cost c = inner_.cost(in);
        const double x = double(in.size());
        c.backward_input += {x, 3 * sizeof(T) * x};
        if (c.saves_output) c.saved_bytes += block_bytes<T>(inner_.output_shape(in));
        c.saves_output = c.passes_through = false;
        return c;
    }

    std::string describe() const { return concat("skip around ", inner_.size()); }

    sequential<T, D>& inner() { return inner_; }
    const sequential<T, D>& inner() const { return inner_; }

private:
    template <class Backward>
    static tensor<T, D> backward_with(tensor<T, D> dy, saved_tensors<T, D>& saved, Backward&& run) {
        const index_t width = saved.take(0).shape().back();
        tensor<T, D> dinner = cut_channels(dy, width, dy.extent(-1) - width);
        tensor<T, D> dskip = cut_channels(dy, 0, width);
        dy.reset();
        return add(run(std::move(dinner)), std::move(dskip));
    }

    sequential<T, D> inner_;
};

CAIRN_COMPILED_CLASS(concat_skip)

}  // namespace cairn
