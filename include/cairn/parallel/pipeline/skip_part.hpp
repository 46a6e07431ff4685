#pragma once
// A long skip (nn/concat_skip.hpp) that a pipeline cuts: y = (x | inner(x)), with the layers of `inner` on several
// stages. What travels between two of them is a bundle, the skip beside the activation, (N, skip | activation): one
// tensor, as everywhere else.
//   first part  x → (x, inner₁(x))     middle part  (x, h) → (x, inner₂(h))     last part  (x, h) → (x | inner₃(h))
// Backward likewise: (dx, dh) travels, and the first part adds them, in the order of the whole layer. The same bits.
// Bundles nest: inside a skip that is cut, another one may be.

#include <cairn/nn/add.hpp>
#include <cairn/nn/channels.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>
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

    /// `skip` and `activation`: shapes of one sample of x, and of what this part's layers read.
    struct config {
        bool first = false, last = false;
        shape skip, activation;
    };

    skip_part(sequential<T, D> layers, config c) : layers_(std::move(layers)), c_(c) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require_input(x.shape());
        const index_t n = x.extent(0);
        auto [skip, h] = c_.first ? std::pair(x.share(), x.share()) : unbundle(x, at(c_.activation, n));
        x.reset();
        h = layers_.forward(std::move(h), saved.child(0), p);
        if (!c_.last) return bundle(skip, h);
        std::vector<tensor<T, D>> parts;
        parts.push_back(std::move(skip));
        parts.push_back(std::move(h));
        return join_channels(parts);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(std::move(dy),
                             [&](tensor<T, D> dh) { return layers_.backward_input(std::move(dh), saved.child(0), p); });
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        layers_.backward_weight(saved.child(0), p);
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return backward_with(std::move(dy),
                             [&](tensor<T, D> dh) { return layers_.backward(std::move(dh), saved.child(0), p); });
    }

    layer_parameters<T, D> parameters() { return layers_.parameters(); }
    layer_buffers<T, D> buffers() { return layers_.buffers(); }

    shape output_shape(const shape& in) const {
        require_input(in);
        const shape skip = at(c_.skip, in.front()), h = layers_.output_shape(at(c_.activation, in.front()));
        return c_.last ? skip.with(-1, skip.back() + h.back()) : bundle_shape(skip, h);
    }

    layer_cost cost(const shape& in) const {
        layer_cost c = layers_.cost(at(c_.activation, in.front()));
        const double moved = 2 * sizeof(T) * double(in.size() + output_shape(in).size());
        c.forward.bytes += moved;
        c.backward_input.bytes += moved;
        c.saved_bytes += (c.saves_input ? block_bytes<T>(at(c_.activation, in.front())) : 0) +
                         (c.saves_output ? block_bytes<T>(layers_.output_shape(at(c_.activation, in.front()))) : 0);
        c.saves_input = c.saves_output = c.passes_through = false;
        return c;
    }

    std::string describe() const {
        return concat(c_.first ? "first" : c_.last ? "last" : "middle", " part of a skip, around ", layers_.size());
    }

private:
    static shape at(const shape& sample, index_t n) { return sample.with(0, n); }

    void require_input(const shape& in) const {
        const shape wanted =
            c_.first ? at(c_.skip, in.front()) : bundle_shape(at(c_.skip, in.front()), at(c_.activation, in.front()));
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

    template <class Backward>
    tensor<T, D> backward_with(tensor<T, D> dy, Backward&& run) {
        const index_t n = dy.extent(0), width = c_.skip.back();
        auto [dskip, dh] = c_.last
                               ? std::pair(cut_channels(dy, 0, width), cut_channels(dy, width, dy.extent(-1) - width))
                               : unbundle(dy, layers_.output_shape(at(c_.activation, n)));
        dy.reset();
        dh = run(std::move(dh));
        return c_.first ? add(std::move(dh), std::move(dskip)) : bundle(dskip, dh);
    }

    sequential<T, D> layers_;
    config c_;
};

}  // namespace cairn
