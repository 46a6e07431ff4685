#pragma once
// Residual block (He et al. 2016):  y = body(x) + shortcut(x).  An empty shortcut is the identity.
// Where the body ends in a layer that adds by itself (batch_norm), sum and activation are one pass with it:
//   y = activation(batch_norm(… x …) + shortcut(x))
// So does linear, without an activation. Otherwise an activation belongs behind the block, where it works in place.
// In backward the first layer of whichever way ends last adds what the other way says of x, in one pass where it can
// (layer_norm; conv on GPUs).
// Backward holds one gradient beside the body's own: that of the sum until the body is done, then the result, to which
// the other half is added in place.

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
    static constexpr bool is_container = true;

    explicit residual(sequential<T, D> body, sequential<T, D> shortcut = {})
        : body_(std::move(body)), shortcut_(std::move(shortcut)) {
        require(body_.size() > 0, "residual: the body has no layers");
    }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        output_shape(x.shape());
        tensor<T, D> skip = shortcut_.forward(x.share(), saved.child(1), p);
        if (body_.accepts_residual()) return body_.forward_residual(std::move(x), std::move(skip), saved.child(0), p);
        tensor<T, D> y = body_.forward(std::move(x), saved.child(0), p);
        return add(std::move(y), std::move(skip));
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (is_identity()) {
            if (body_.accepts_residual()) return body_.backward_input_sum(std::move(dy), saved.child(0), p);
            tensor<T, D> dskip = dy.share();
            return body_.backward_input_onto(std::move(dy), std::move(dskip), saved.child(0), p);
        }
        auto [dx, dskip] = body_.accepts_residual() ? body_.backward_input_residual(std::move(dy), saved.child(0), p)
                                                    : both(std::move(dy), [&](tensor<T, D> d) {
                                                          return body_.backward_input(std::move(d), saved.child(0), p);
                                                      });
        return shortcut_.backward_input_onto(std::move(dskip), std::move(dx), saved.child(1), p);
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        body_.backward_weight(saved.child(0), p);
        shortcut_.backward_weight(saved.child(1), p);
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (is_identity()) {
            if (body_.accepts_residual()) return body_.backward_sum(std::move(dy), saved.child(0), p);
            tensor<T, D> dskip = dy.share();
            return body_.backward_onto(std::move(dy), std::move(dskip), saved.child(0), p);
        }
        auto [dx, dskip] =
            body_.accepts_residual()
                ? body_.backward_residual(std::move(dy), saved.child(0), p)
                : both(std::move(dy), [&](tensor<T, D> d) { return body_.backward(std::move(d), saved.child(0), p); });
        return shortcut_.backward_onto(std::move(dskip), std::move(dx), saved.child(1), p);
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
        const double size = sizeof(T), x = double(in.size()), y = double(output_shape(in).size());
        layer_cost c = body_.accepts_residual() ? body_.cost_residual(in) : body_.cost(in);
        c.forward += skip.forward;
        c.backward_input += skip.backward_input;
        c.backward_weight += skip.backward_weight;
        c.backward_input += {x, (is_identity() && body_.adds_base() ? 1 : 3) * size * x};
        c.parameters += skip.parameters;
        c.saved_bytes += skip.saved_bytes;
        c.saves_input = c.saves_input || skip.saves_input;
        const index_t out_block = block_bytes<T>(output_shape(in));
        if (!body_.accepts_residual()) {  // the sum is a block of its own, which nobody keeps
            c.forward += {y, 3 * size * y};
            if (std::exchange(c.saves_output, false)) c.saved_bytes += out_block;
        }
        if (skip.saves_output) c.saved_bytes += out_block;
        c.passes_through = false;
        return c;
    }

    std::string describe() const {
        return concat("residual of ", body_.size(), shortcut_.size() ? " with projection" : "");
    }

    const sequential<T, D>& body() const { return body_; }
    const sequential<T, D>& shortcut() const { return shortcut_; }

private:
    bool is_identity() const { return shortcut_.size() == 0; }

    // {dx, dskip} of a body that adds nothing itself: dy goes both ways.
    template <class Backward>
    static std::pair<tensor<T, D>, tensor<T, D>> both(tensor<T, D> dy, Backward&& backward) {
        tensor<T, D> dskip = dy.share();
        return {backward(std::move(dy)), std::move(dskip)};
    }

    sequential<T, D> body_, shortcut_;
};

CAIRN_COMPILED_CLASS(residual)

}  // namespace cairn
