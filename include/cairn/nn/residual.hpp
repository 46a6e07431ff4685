#pragma once
// Residual block (He et al. 2016):  y = body(x) + shortcut(x).  An empty shortcut is the identity.
// A body that ends in a ResidualLayer (batch_norm) adds the skip in that layer's pass, activation included:
//   y = activation(batch_norm(… x …) + shortcut(x))
// Elsewhere an activation belongs behind the block, where it works in place.
// Backward holds one gradient beside the body's own: that of the sum until the body is done, then the result.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// Two chains side by side, added.
template <class T = float, Device D = cpu>
class residual {
public:
    using value_type = T;
    using device = D;

    explicit residual(sequential<T, D> body, sequential<T, D> shortcut = {})
        : body_(std::move(body)), shortcut_(std::move(shortcut)) {
        require(body_.size() > 0, "residual: the body has no layers");
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        saved_tensors<T, D>& inside = saved.child(0);
        tensor<T, D> skip = shortcut_.forward(x.share(), saved.child(1), p.child("shortcut"));
        tensor<T, D> y = body_.forward_until(plain_layers(), std::move(x), inside, p);
        if (!adds_skip()) return add(std::move(y), std::move(skip));
        const shape in = y.shape();
        const auto add_skip = [&](auto& layer) {
            return layer.residual().forward(std::move(y), std::move(skip), inside.child(last()),
                                            body_.context_of(last(), p));
        };
        return body_.visit(last(), "forward", add_skip, &in);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        saved_tensors<T, D>& inside = saved.child(0);
        auto [dx, dskip] = gradients_of_sum(std::move(dy), inside, p, false);
        for (int i = plain_layers(); i-- > 0;) dx = body_.backward_input_of(i, std::move(dx), inside, p);
        return add(std::move(dx), shortcut_.backward_input(std::move(dskip), saved.child(1), p.child("shortcut")));
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        body_.backward_weight(saved.child(0), p);
        shortcut_.backward_weight(saved.child(1), p.child("shortcut"));
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        saved_tensors<T, D>& inside = saved.child(0);
        auto [dx, dskip] = gradients_of_sum(std::move(dy), inside, p, true);
        for (int i = plain_layers(); i-- > 0;) dx = body_.backward_of(i, std::move(dx), inside, p);
        return add(std::move(dx), shortcut_.backward(std::move(dskip), saved.child(1), p.child("shortcut")));
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all = body_.parameters();
        append_prefixed(all, "shortcut", shortcut_.parameters());
        return all;
    }

    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all = body_.buffers();
        append_prefixed(all, "shortcut", shortcut_.buffers());
        return all;
    }

    shape output_shape(const shape& in) const {
        const shape out = body_.output_shape(in), skip = shortcut_.output_shape(in);
        require(out == skip, "residual: from ", in, " the body makes ", out, ", the shortcut ", skip,
                "; they must agree");
        return out;
    }

    layer_cost cost(const shape& in) const {
        const layer_cost skip = shortcut_.cost(in);
        const shape out = output_shape(in);
        const double size = sizeof(T), x = double(in.size()), y = double(out.size());
        layer_cost c = body_.cost(in);
        c.forward += skip.forward;
        c.backward_input += skip.backward_input;
        c.backward_weight += skip.backward_weight;
        c.backward_input += {x, 3 * size * x};
        c.parameters += skip.parameters;
        c.saved_bytes += skip.saved_bytes;
        c.saves_input = c.saves_input || skip.saves_input;
        if (adds_skip()) {
            c.forward += {y, size * y};
            if (c.masks_gradient) c.backward_input += {0, size * y};  // else dskip is dy
        } else {  // the sum is a block of its own, which no layer saves
            c.forward += {y, 3 * size * y};
            if (std::exchange(c.saves_output, false)) c.saved_bytes += block_bytes<T>(out);
        }
        if (skip.saves_output) c.saved_bytes += block_bytes<T>(out);
        c.passes_through = c.masks_gradient = false;
        return c;
    }

    std::string describe() const {
        return concat("residual of ", body_.size(), shortcut_.size() ? " with projection" : "");
    }

    const sequential<T, D>& body() const { return body_; }
    const sequential<T, D>& shortcut() const { return shortcut_; }
    /// Whether the body's last layer adds the skip.
    bool adds_skip() const { return static_cast<bool>(body_[last()].residual()); }

private:
    int last() const { return body_.size() - 1; }
    // Layers of the body that run as in any chain: all, or all but the one that adds the skip.
    int plain_layers() const { return adds_skip() ? last() : body_.size(); }

    // From the gradient of y: those of the plain layers' result and of the skip.
    std::pair<tensor<T, D>, tensor<T, D>> gradients_of_sum(tensor<T, D> dy, saved_tensors<T, D>& inside,
                                                           const pass_context& p, bool both_halves) {
        if (!adds_skip()) {
            tensor<T, D> dskip = dy.share();
            return {std::move(dy), std::move(dskip)};
        }
        return body_.visit(last(), both_halves ? "backward" : "backward_input", [&](auto& layer) {
            const pass_context its = body_.context_of(last(), p);
            saved_tensors<T, D>& its_saved = inside.child(last());
            auto gradients = layer.residual().backward(std::move(dy), its_saved, its);
            if (both_halves) layer.backward_weight(its_saved, its), its_saved.clear();
            return gradients;
        });
    }

    sequential<T, D> body_, shortcut_;
};

CAIRN_COMPILED_CLASS(residual)

}  // namespace cairn
