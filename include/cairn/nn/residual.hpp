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

// What a residual block is made of beside its shortcut, for the block itself and for its parts on several ranks
// (parallel/pipeline/skip_part.hpp).

/// Whether the last layer of a block's body adds the skip.
template <class T, Device D>
bool adds_skip(const sequential<T, D>& body) {
    return body.size() > 0 && static_cast<bool>(body[body.size() - 1].residual());
}

/// body(x) + skip, added by the body's last layer where it can.
template <class T, Device D>
tensor<T, D> forward_with_skip(sequential<T, D>& body, tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved,
                               const pass_context& p) {
    if (!adds_skip(body)) return add(body.forward(std::move(x), saved, p), std::move(skip));
    const int last = body.size() - 1;
    tensor<T, D> y = body.forward_until(last, std::move(x), saved, p);
    const shape in = y.shape();
    const auto add_skip = [&](auto& layer) {
        return layer.residual().forward(std::move(y), std::move(skip), saved.child(last, body.name(last)),
                                        body.context_of(last, p));
    };
    return body.visit(last, "forward", add_skip, &in);
}

/// From the gradient of that sum: {dx, dskip}. Both halves of the body's backward, or the first one.
template <class T, Device D>
std::pair<tensor<T, D>, tensor<T, D>> backward_with_skip(sequential<T, D>& body, tensor<T, D> dy,
                                                         saved_tensors<T, D>& saved, const pass_context& p,
                                                         bool both_halves) {
    int plain = body.size();  // layers that run as in any chain
    std::pair<tensor<T, D>, tensor<T, D>> gradients;
    if (adds_skip(body)) {
        --plain;
        gradients = body.visit(plain, both_halves ? "backward" : "backward_input", [&](auto& layer) {
            const pass_context its = body.context_of(plain, p);
            saved_tensors<T, D>& its_saved = saved.child(plain);
            auto of_sum = layer.residual().backward(std::move(dy), its_saved, its);
            if (both_halves) layer.backward_weight(its_saved, its), its_saved.clear();
            return of_sum;
        });
    } else {
        gradients.second = dy.share();
        gradients.first = std::move(dy);
    }
    tensor<T, D>& dx = gradients.first;
    while (plain-- > 0)
        dx = both_halves ? body.backward_of(plain, std::move(dx), saved, p)
                         : body.backward_input_of(plain, std::move(dx), saved, p);
    return gradients;
}

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
        tensor<T, D> skip = shortcut_.forward(x.share(), saved.child(1, "shortcut"), p.child("shortcut"));
        return forward_with_skip(body_, std::move(x), std::move(skip), saved.child(0, ""), p);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        auto [dx, dskip] = backward_with_skip(body_, std::move(dy), saved.child(0), p, false);
        return add(std::move(dx), shortcut_.backward_input(std::move(dskip), saved.child(1), p.child("shortcut")));
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        body_.backward_weight(saved.child(0), p);
        shortcut_.backward_weight(saved.child(1), p.child("shortcut"));
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        auto [dx, dskip] = backward_with_skip(body_, std::move(dy), saved.child(0), p, true);
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

    sequential<T, D>& body() { return body_; }
    sequential<T, D>& shortcut() { return shortcut_; }
    const sequential<T, D>& body() const { return body_; }
    const sequential<T, D>& shortcut() const { return shortcut_; }
    /// Whether the body's last layer adds the skip.
    bool adds_skip() const { return cairn::adds_skip(body_); }

private:
    sequential<T, D> body_, shortcut_;
};

CAIRN_COMPILED_CLASS(residual)

}  // namespace cairn
