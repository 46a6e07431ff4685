#pragma once
// Two chains side by side (nn/children.hpp), one of which a pipeline cuts: a long skip, y = (x | inner(x)), a residual
// block, y = body(x) + shortcut(x), and what users make like them. What travels between two stages is a bundle: what
// the chain that is not cut made (the skip) beside the activation, (N, skip | activation), one tensor as everywhere
// else.
//   first part     x → (beside(x), inside₁(x))
//   middle part    (s, h) → (s, inside₂(h))
//   last part      (s, h) → (s | inside₃(h))  or  inside₃(h) + s
// Backward likewise: (ds, dh) travels, and the first part adds dx of both ways, in the order of the whole layer. The
// same bits. Bundles nest: inside a skip that is cut, another one may be.

#include <cairn/nn/branches.hpp>

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

    struct config {
        bool first = false, last = false;
        combination how = combination::join;
        bool skip_leads = false;      // of joined channels
        std::string name, skip_name;  // of the two chains, in paths
        shape skip, activation;       // of one sample of what travels beside, and of what this part's layers read
    };

    /// `beside`: the chain that is not cut, on the first part.
    skip_part(sequential<T, D> layers, config c, sequential<T, D> beside = {})
        : layers_(std::move(layers)), beside_(std::move(beside)), c_(std::move(c)) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_input(x.shape());
        const index_t n = x.extent(0);
        tensor<T, D> skip, h;
        if (c_.first) {
            skip = beside_.forward(x.share(), saved.child(1, c_.skip_name), p.child(c_.skip_name));
            h = std::move(x);
        } else {
            std::tie(skip, h) = unbundle(std::exchange(x, {}), at(c_.activation, n));
        }
        saved_tensors<T, D>& its_saved = saved.child(0, c_.name);
        const pass_context its = p.child(c_.name);
        if (c_.last && c_.how == combination::residual)
            return forward_with_skip(layers_, std::move(h), std::move(skip), its_saved, its);
        h = layers_.forward(std::move(h), its_saved, its);
        if (!c_.last) return bundle(skip, h);
        if (adds()) return add(std::move(h), std::move(skip));
        std::vector<tensor<T, D>> parts;
        parts.push_back(std::move(c_.skip_leads ? skip : h));
        parts.push_back(std::move(c_.skip_leads ? h : skip));
        return join_channels(parts);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, false);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        layers_.backward_weight(saved.child(0), p.child(c_.name));
        beside_.backward_weight(saved.child(1), p.child(c_.skip_name));
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_through(std::move(dy), saved, p, true);
    }

    layer_parameters<T, D> parameters() {
        layer_parameters<T, D> all;
        append_prefixed(all, c_.name, layers_.parameters());
        append_prefixed(all, c_.skip_name, beside_.parameters());
        return all;
    }
    layer_buffers<T, D> buffers() {
        layer_buffers<T, D> all;
        append_prefixed(all, c_.name, layers_.buffers());
        append_prefixed(all, c_.skip_name, beside_.buffers());
        return all;
    }

    shape output_shape(const shape& in) const {
        require_input(in);
        const shape skip = at(c_.skip, in.front()), h = layers_.output_shape(at(c_.activation, in.front()));
        if (!c_.last) return bundle_shape(skip, h);
        return adds() ? h : skip.with(-1, skip.back() + h.back());
    }

    layer_cost cost(const shape& in) const {
        const shape reads = at(c_.activation, in.front());
        layer_cost c = layers_.cost(reads);
        const double moved = 2 * sizeof(T) * double(in.size() + output_shape(in).size());
        c.saved_bytes += (c.saves_input ? block_bytes<T>(reads) : 0) +
                         (c.saves_output ? block_bytes<T>(layers_.output_shape(reads)) : 0);
        if (beside_.size() > 0) {
            const layer_cost skip = beside_.cost(reads);
            c.add_work(skip);
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
                      " part of a ", c_.how == combination::join ? "skip" : "residual block", ", around ",
                      layers_.size());
    }

private:
    bool adds() const { return c_.how != combination::join; }
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
        const auto through = [&](sequential<T, D>& chain, tensor<T, D> d, int child, const std::string& name) {
            return both_halves ? chain.backward(std::move(d), saved.child(child), p.child(name))
                               : chain.backward_input(std::move(d), saved.child(child), p.child(name));
        };
        tensor<T, D> dskip, dh;
        if (c_.last && c_.how == combination::residual) {
            std::tie(dh, dskip) =
                backward_with_skip(layers_, std::move(dy), saved.child(0), p.child(c_.name), both_halves);
        } else {
            if (!c_.last) {
                std::tie(dskip, dh) = unbundle(dy, layers_.output_shape(at(c_.activation, dy.extent(0))));
            } else if (adds()) {
                dskip = dy.share();
                dh = dy.share();
            } else {
                const index_t width = c_.skip.back(), rest = dy.extent(-1) - width;
                dskip = cut_channels(dy, c_.skip_leads ? 0 : rest, width);
                dh = cut_channels(dy, c_.skip_leads ? width : 0, rest);
            }
            dy.reset();
            dh = through(layers_, std::move(dh), 0, c_.name);
        }
        if (!c_.first) return bundle(dskip, dh);
        return add(std::move(dh), through(beside_, std::move(dskip), 1, c_.skip_name));
    }

    sequential<T, D> layers_, beside_;
    config c_;
};

}  // namespace cairn
