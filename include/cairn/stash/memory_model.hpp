#pragma once
// Predicts the activation memory of a training step from shapes alone, by playing the step: who allocates, shares and
// lets go, in the order of the code, but a block is only its number of bytes. A layer is played from its cost(): what
// it saves, what it overwrites, what it lets go first; containers are played layer by layer. Tested to be exact for
// every layer of the library (the law "peak" of tests/nn/layer_laws.hpp).

#include <cairn/core/cost.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/sequential.hpp>

#include <deque>

namespace cairn {

/// Plays training steps of layers over T; live() and peak() are bytes of memory_pool::activations().
template <class T = float, Device D = cpu>
class memory_model {
public:
    /// A share in a block, as a tensor holds it; null for no block.
    using block = std::shared_ptr<const index_t>;

    /// Tensors that a layer leaves for backward, as saved_tensors holds them.
    struct node {
        block input, output, beside;
        shape in;
        std::deque<node> children;
        bool discards = false;

        node& child(int i) {
            while (children.size() <= static_cast<std::size_t>(i)) children.emplace_back();
            children[static_cast<std::size_t>(i)].discards = discards;
            return children[static_cast<std::size_t>(i)];
        }
    };

    index_t live() const { return live_; }
    index_t peak() const { return peak_; }

    /// From now on saved inputs and outputs wait as this share of their bytes; 1: as they are.
    void pack_by(double share) { share_ = share; }

    /// A new block of the pool. The model must outlive it.
    block make(index_t bytes) {
        if (bytes == 0) return nullptr;
        live_ += bytes;
        peak_ = std::max(peak_, live_);
        return block(new index_t(bytes), [this](const index_t* b) {
            live_ -= *b;
            delete b;
        });
    }
    block make(const shape& s) { return make(block_bytes<T>(s)); }

    /// The result's block. `in` is the shape of x.
    block forward(const any_layer<T, D>& layer, block x, const shape& in, node& saved) {
        saved.in = in;
        const layer_children<T, D> inside = layer.children();
        if (inside.how == combination::none) return leaf_forward(layer, std::move(x), nullptr, in, saved);
        if (inside.how == combination::chain) return forward(*inside[0].layers, std::move(x), in, saved);
        std::vector<block> joined;
        block sum;
        for (int i = inside.size(); i-- > 0;) {
            const sequential<T, D>& chain = *inside[i].layers;
            block its = i > 0 ? x : std::move(x);
            if (adds_skip(inside, i))
                return forward_residual(chain, std::move(its), std::move(sum), in, saved.child(i));
            block y = forward(chain, std::move(its), in, saved.child(i));
            if (inside.how == combination::join)
                joined.push_back(std::move(y));
            else
                sum = i + 1 == inside.size() ? std::move(y) : add(std::move(y), std::move(sum), chain.output_shape(in));
        }
        return inside.how == combination::join ? make(layer.output_shape(in)) : sum;
    }

    block forward(const sequential<T, D>& chain, block x, const shape& in, node& saved) {
        shape s = in;
        return forward_until(chain, chain.size(), std::move(x), s, saved);
    }

    /// The block of the input's gradient after joint backward; null without `input_gradient`.
    block backward(const any_layer<T, D>& layer, block dy, node& saved, bool input_gradient) {
        const shape in = saved.in;
        const layer_children<T, D> inside = layer.children();
        if (inside.how == combination::none) return leaf_backward(layer, std::move(dy), saved, input_gradient);
        if (inside.how == combination::chain) return backward(*inside[0].layers, std::move(dy), saved, input_gradient);
        std::vector<block> parts;  // of dy
        if (inside.how == combination::join) {
            for (const auto& child : inside.chains) parts.push_back(make(child.layers->output_shape(in)));
            dy.reset();
        }
        block dx;
        for (int i = 0; i < inside.size(); ++i) {
            const sequential<T, D>& chain = *inside[i].layers;
            if (adds_skip(inside, i)) {
                std::tie(dx, dy) = backward_residual(chain, std::move(dy), saved.child(i), input_gradient);
                continue;
            }
            block its = !parts.empty()          ? std::move(parts[static_cast<std::size_t>(i)])
                        : i + 1 < inside.size() ? dy
                                                : std::move(dy);
            its = backward(chain, std::move(its), saved.child(i), input_gradient);
            dx = i == 0 ? std::move(its) : add(std::move(dx), std::move(its), in);
        }
        return dx;
    }

    block backward(const sequential<T, D>& chain, block dy, node& saved, bool input_gradient) {
        for (int i = chain.size(); i-- > 0;) {
            restore(chain, i, saved);
            dy = backward(chain[i], std::move(dy), saved.child(i), input_gradient || i > 0);
        }
        return dy;
    }

    /// What layers [begin, end) of a chain save, and the highest bytes while they run, from nothing to
    /// nothing.
    struct range_use {
        index_t kept = 0, peak = 0;
    };

    /// Plays these layers alone on an input of shape `in`: kept as they are, or recomputed from their input. The
    /// batch that the first layer reads is not counted.
    static range_use play(const sequential<T, D>& chain, int begin, int end, const shape& in, bool recompute,
                          double packed_share = 1) {
        memory_model model;
        model.pack_by(packed_share);
        node saved;
        shape s = in;
        const block batch = std::make_shared<const index_t>(0);
        block x = begin == 0 ? batch : model.make(in), kept = recompute ? x : nullptr;
        saved.discards = recompute;
        block y = model.forward_range(chain, begin, end, std::move(x), s, saved);
        saved.discards = false;
        range_use use;
        use.kept = model.live() - (y.use_count() == 1 ? *y : 0);
        if (recompute) {  // the output is gone, its gradient is here
            y.reset();
            y = model.make(s);
            s = in;
            model.forward_range(chain, begin, end, std::move(kept), s, saved);
        }
        for (int i = end; i-- > begin;) y = model.backward(chain[i], std::move(y), saved.child(i), i > 0);
        y.reset();
        use.peak = model.peak();
        return use;
    }

private:
    using segment = typename sequential<T, D>::segment;

    static bool adds_skip(const layer_children<T, D>& inside, int i) {
        return i == 0 && inside.how == combination::residual && cairn::adds_skip(*inside[0].layers);
    }

    static const segment* segment_of(const sequential<T, D>& chain, int i) {
        for (const segment& s : chain.recomputed())
            if (s.begin <= i && i < s.end) return &s;
        return nullptr;
    }

    // s: shape of x, of the result afterwards.
    block forward_until(const sequential<T, D>& chain, int end, block x, shape& s, node& saved) {
        for (int i = 0; i < end;) {
            const segment* const again = segment_of(chain, i);
            const int next = again ? again->end : i + 1;
            const bool before = saved.discards;
            if (again) {
                saved.child(i).in = s;
                if (!before) saved.child(i).input = x;  // the chain's own slot i
                saved.discards = true;
            }
            x = forward_range(chain, i, next, std::move(x), s, saved);
            saved.discards = before;
            i = next;
        }
        return x;
    }

    block forward_range(const sequential<T, D>& chain, int begin, int end, block x, shape& s, node& saved) {
        for (int i = begin; i < end; ++i) {
            x = forward(chain[i], std::move(x), s, saved.child(i));
            s = chain[i].output_shape(s);
        }
        return x;
    }

    void restore(const sequential<T, D>& chain, int i, node& saved) {
        const segment* const again = segment_of(chain, i);
        if (!again || again->end != i + 1) return;
        node& first = saved.child(again->begin);
        shape s = first.in;
        forward_range(chain, again->begin, again->end, std::move(first.input), s, saved);
    }

    block forward_residual(const sequential<T, D>& chain, block x, block skip, const shape& in, node& saved) {
        shape s = in;
        const int last = chain.size() - 1;
        x = forward_until(chain, last, std::move(x), s, saved);
        saved.child(last).in = s;
        return leaf_forward(chain[last], std::move(x), std::move(skip), s, saved.child(last));
    }

    std::pair<block, block> backward_residual(const sequential<T, D>& chain, block dy, node& saved,
                                              bool input_gradient) {
        const int last = chain.size() - 1;
        std::pair<block, block> grads;
        {  // As batch_norm does it: dskip over dy, or dy itself without an activation; dx over the saved input.
            node& end = saved.child(last);
            const layer_cost c = chain[last].cost(end.in);
            const block beside = std::move(end.beside), sums = sums_of(c);
            block x = unpacked(std::move(end.input), end.in);
            grads.second = dy.use_count() == 1 || !c.masks_gradient ? std::move(dy) : make(end.in);
            grads.first = x.use_count() == 1 ? std::move(x) : make(end.in);
        }
        for (int i = last; i-- > 0;) {
            restore(chain, i, saved);
            grads.first = backward(chain[i], std::move(grads.first), saved.child(i), input_gradient || i > 0);
        }
        return grads;
    }

    block leaf_forward(const any_layer<T, D>& layer, block x, block skip, const shape& in, node& saved) {
        const layer_cost c = layer.cost(in);
        block beside = make(c.saved_bytes);
        const block input = x;
        block y = skip.use_count() == 1 ? std::move(skip) : c.passes_through ? std::move(x) : nullptr;
        if (!y && c.in_place_forward && input.use_count() == 2) y = std::move(x);  // `input` and x
        if (!y) y = make(layer.output_shape(in));
        if (!saved.discards) {
            saved.beside = std::move(beside);
            if (c.saves_input) saved.input = packed(input);
            if (c.saves_output) saved.output = packed(y);
        }
        return y;
    }

    block leaf_backward(const any_layer<T, D>& layer, block dy, node& saved, bool input_gradient) {
        const layer_cost c = layer.cost(saved.in);
        if (c.passes_through) return dy;
        block input = unpacked(std::move(saved.input), saved.in);
        const block output = unpacked(std::move(saved.output), layer.output_shape(saved.in)),
                    beside = std::move(saved.beside);
        block sums;
        if (c.weight_gradient_first)
            input.reset();
        else if (!c.holds_input)
            sums = sums_of(c);
        if (!input_gradient) return nullptr;
        return c.in_place_backward && dy.use_count() == 1 ? std::move(dy) : make(saved.in);
    }

    // Gradients of scale and shift that a normalisation holds between the halves of backward.
    block sums_of(const layer_cost& c) {
        return c.parameters ? make(block_bytes(c.parameters * index_t(sizeof(weight_of<T>)))) : nullptr;
    }

    // See nn/add.hpp.
    block add(block a, block b, const shape& s) {
        if (!a || !b) return nullptr;
        return a.use_count() == 1 ? std::move(a) : b.use_count() == 1 ? std::move(b) : make(s);
    }

    block packed(const block& b) {
        return share_ == 1 || !b ? b : make(static_cast<index_t>(share_ * static_cast<double>(*b)));
    }
    block unpacked(block b, const shape& s) { return share_ == 1 || !b ? std::move(b) : make(s); }

    index_t live_ = 0, peak_ = 0;
    double share_ = 1;  // of the bytes of a saved block
};

/// Highest activation bytes of forward, loss and backward of `chain` on one batch of shape `in`. The batch itself is
/// not counted (its category is data); the loss writes its gradient over the prediction.
template <class T, Device D>
index_t predicted_peak(const sequential<T, D>& chain, const shape& in, bool input_gradient = false) {
    memory_model<T, D> model;
    typename memory_model<T, D>::node saved;
    const auto batch = std::make_shared<const index_t>(0);  // held by the caller: not overwritten
    auto y = model.forward(chain, batch, in, saved);
    model.backward(chain, std::move(y), saved, input_gradient);
    return model.peak();
}

}  // namespace cairn
