#pragma once
// A skip that a pipeline cuts: a long one (nn/concat_skip.hpp), y = (x | inner(x)), or a residual block
// (nn/residual.hpp), y = body(x) + shortcut(x), with the layers of `inner` or `body` on several stages. What travels
// between two of them is a bundle, the skip beside the activation, (N, skip | activation): one tensor, as everywhere
// else. The shortcut runs on the first part, so that what it makes travels, not x.
//   first part     x → (x, inner₁(x))                x → (shortcut(x), body₁(x))
//   middle part    (s, h) → (s, inner₂(h))           (s, h) → (s, body₂(h))
//   last part      (s, h) → (s | inner₃(h))          (s, h) → body₃(h) + s
// Backward likewise: (ds, dh) travels, and the first part adds dx of both ways, in the order of the whole layer. The
// same bits. Bundles nest: inside a skip that is cut, another one may be.

#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/residual.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace cairn {

/// The shape of a bundle.
inline shape bundle_shape(const shape& skip, const shape& activation) {
    const index_t n = std::max<index_t>(skip.front(), 1);
    return {skip.front(), skip.size() / n + activation.size() / n};
}

/// See the top of the file. A layer like any other.
template <class T = float, Device D = cpu>
class skip_part {
public:
    using value_type = T;
    using device = D;

    /// `skip` and `activation`: shapes of one sample of what travels beside, and of what this part's layers read.
    struct config {
        bool first = false, last = false;
        bool adds = false;  // a residual block's; else the skip is joined
        shape skip, activation;
    };

    /// `shortcut`: of a residual block, on its first part.
    skip_part(sequential<T, D> layers, config c, sequential<T, D> shortcut = {})
        : layers_(std::move(layers)), shortcut_(std::move(shortcut)), c_(c) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_input(x.shape());
        const index_t n = x.extent(0);
        tensor<T, D> skip, h;
        if (c_.first) {
            skip = shortcut_.forward(x.share(), saved.child(1, "shortcut"), p.child("shortcut"));
            h = std::move(x);
        } else {
            std::tie(skip, h) = unbundle(std::exchange(x, {}), at(c_.activation, n));
        }
        if (c_.last && c_.adds) return forward_with_skip(layers_, std::move(h), std::move(skip), saved.child(0, ""), p);
        h = layers_.forward(std::move(h), saved.child(0, ""), p);
        if (!c_.last) return bundle(skip, h);
        std::vector<tensor<T, D>> parts;
        parts.push_back(std::move(skip));
        parts.push_back(std::move(h));
        return join_channels(parts);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, false);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        layers_.backward_weight(saved.child(0), p);
        shortcut_.backward_weight(saved.child(1), p.child("shortcut"));
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, true);
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all = layers_.parameters();
        append_prefixed(all, "shortcut", shortcut_.parameters());
        return all;
    }
    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all = layers_.buffers();
        append_prefixed(all, "shortcut", shortcut_.buffers());
        return all;
    }

    shape output_shape(const shape& in) const {
        require_input(in);
        const shape skip = at(c_.skip, in.front()), h = layers_.output_shape(at(c_.activation, in.front()));
        if (!c_.last) return bundle_shape(skip, h);
        return c_.adds ? h : skip.with(-1, skip.back() + h.back());
    }

    layer_cost cost(const shape& in) const {
        const shape reads = at(c_.activation, in.front());
        layer_cost c = layers_.cost(reads);
        const double moved = 2 * sizeof(T) * double(in.size() + output_shape(in).size());
        c.saved_bytes += (c.saves_input ? block_bytes<T>(reads) : 0) +
                         (c.saves_output ? block_bytes<T>(layers_.output_shape(reads)) : 0);
        if (shortcut_.size() > 0) {
            const layer_cost skip = shortcut_.cost(reads);
            c.forward += skip.forward;
            c.backward_input += skip.backward_input;
            c.backward_weight += skip.backward_weight;
            c.parameters += skip.parameters;
            c.saved_bytes += skip.saved_bytes + (skip.saves_input && !c.saves_input ? block_bytes<T>(reads) : 0) +
                             (skip.saves_output ? block_bytes<T>(at(c_.skip, in.front())) : 0);
        }
        c.forward.bytes += moved;
        c.backward_input.bytes += moved;
        c.saves_input = c.saves_output = c.passes_through = false;
        return c;
    }

    std::string describe() const {
        return concat(c_.first  ? "first"
                      : c_.last ? "last"
                                : "middle",
                      " part of a ", c_.adds ? "residual block" : "skip", ", around ", layers_.size());
    }

private:
    static shape at(const shape& sample, index_t n) { return sample.with(0, n); }

    void require_input(const shape& in) const {
        const shape reads = at(c_.activation, in.front()),
                    wanted = c_.first ? reads : bundle_shape(at(c_.skip, in.front()), reads);
        require(in == wanted, "part of a skip: input of shape ", in, ", it was cut for ", wanted);
    }

    static tensor<T, D> bundle(const tensor<T, D>& skip, const tensor<T, D>& h) {
        const index_t n = skip.extent(0), rows = std::max<index_t>(n, 1);
        std::vector<tensor<T, D>> parts;
        parts.push_back(skip.reshaped({n, skip.size() / rows}));
        parts.push_back(h.reshaped({n, h.size() / rows}));
        return join_channels(parts);
    }
    // The skip, and what lies beside it.
    std::pair<tensor<T, D>, tensor<T, D>> unbundle(const tensor<T, D>& both, const shape& beside) const {
        const index_t width = c_.skip.size();
        return {cut_channels(both, 0, width).reshaped(at(c_.skip, both.extent(0))),
                cut_channels(both, width, both.extent(-1) - width).reshaped(beside)};
    }

    // Both halves of backward, or the first one.
    tensor<T, D> backward_through(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p,
                                  bool both_halves) {
        const auto through = [&](sequential<T, D>& chain, tensor<T, D> d, int child, const pass_context& of) {
            return both_halves ? chain.backward(std::move(d), saved.child(child), of)
                               : chain.backward_input(std::move(d), saved.child(child), of);
        };
        tensor<T, D> dskip, dh;
        if (c_.last && c_.adds) {
            std::tie(dh, dskip) = backward_with_skip(layers_, std::move(dy), saved.child(0), p, both_halves);
        } else {
            const index_t n = dy.extent(0), width = c_.skip.back();
            if (c_.last) {
                dskip = cut_channels(dy, 0, width);
                dh = cut_channels(dy, width, dy.extent(-1) - width);
            } else {
                std::tie(dskip, dh) = unbundle(dy, layers_.output_shape(at(c_.activation, n)));
            }
            dy.reset();
            dh = through(layers_, std::move(dh), 0, p);
        }
        if (!c_.first) return bundle(dskip, dh);
        return add(std::move(dh), through(shortcut_, std::move(dskip), 1, p.child("shortcut")));
    }

    sequential<T, D> layers_, shortcut_;
    config c_;
};

}  // namespace cairn
