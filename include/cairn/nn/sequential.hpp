#pragma once
// A chain of layers. Forward frees each activation once the next layer has read it, unless a layer saved it. Backward
// frees the gradients and saved tensors of a layer once the layer before has its gradient.
// Segments of the chain can be recomputed: forward keeps only the input of a segment, and backward first runs the
// segment forward again. A plan lists the segments (stash/plan.hpp); results have the same bits under any plan.
// Of layers whose gradients nobody needs, those at the front of a model where they are frozen, nothing is saved, and
// backward ends behind them.

#include <cairn/core/compiled.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/any_layer.hpp>

#include <algorithm>

namespace cairn {

/// A chain of named layers.
template <class T = float, Device D = cpu>
class sequential {
public:
    using value_type = T;
    using device = D;

    sequential() = default;

    /// Appends a layer; without a name it is called by its number. Throws on a second layer of one name: paths are
    /// identities.
    sequential& add(std::string name, any_layer<T, D> layer) {
        require(std::ranges::find(names_, name) == names_.end(), "sequential: two layers are called ", name,
                "; give them different names");
        names_.push_back(std::move(name));
        layers_.push_back(std::move(layer));
        return *this;
    }
    sequential& add(any_layer<T, D> layer) { return add(std::to_string(layers_.size()), std::move(layer)); }

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return forward_until(size(), std::move(x), saved, p);
    }

    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = size(); i-- > 0;) dy = backward_input_of(i, std::move(dy), saved, p);
        return dy;
    }

    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = size(); i-- > 0;) {
            if (needs_backward(i, p))
                visit(i, "backward_weight",
                      [&](auto& layer) { layer.backward_weight(saved.child(i), context_of(i, p)); });
            else
                saved.child(i).clear();
        }
    }

    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = size(); i-- > 0;) dy = backward_of(i, std::move(dy), saved, p);
        return dy;
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

    /// Shape after all layers. Throws, naming the first layer that does not accept the output of the one before.
    shape output_shape(const shape& in) const {
        shape s = in;
        for (int i = 0; i < size(); ++i) s = with_context(context(i), [&] { return (*this)[i].output_shape(s); });
        return s;
    }

    layer_cost cost(const shape& in) const {
        layer_cost total;
        shape s = in;
        bool is_input = true;  // the block that travels from layer to layer: is it the chain's input still,
        bool on_tape = false;  // and is it saved already?
        const auto save_block = [&] {
            if (!std::exchange(on_tape, true))
                (is_input ? total.saves_input = true : total.saved_bytes += block_bytes<T>(s));
        };
        for (int i = 0; i < size(); ++i) {
            const layer_cost c = (*this)[i].cost(s);
            const segment* const again = segment_of(i);
            total.add_work(c);
            if (again) total.backward_input += c.forward;
            if (again ? again->begin == i : c.saves_input) save_block();
            if (!again) total.saved_bytes += c.saved_bytes;
            s = (*this)[i].output_shape(s);
            if (!c.passes_through) is_input = on_tape = false;
            total.masks_gradient = c.masks_gradient;
            if (c.saves_output && !again) save_block();
        }
        total.passes_through = is_input;
        total.saves_output = on_tape && !is_input;
        if (total.saves_output) total.saved_bytes -= block_bytes<T>(s);  // counted with outputs
        return total;
    }

    std::string describe() const { return concat("sequential of ", size()); }

    layer_children<T, D> children() { return {combination::chain, {{"", this}}}; }

    int size() const { return static_cast<int>(layers_.size()); }
    any_layer<T, D>& operator[](int i) { return layers_[static_cast<std::size_t>(i)]; }
    const any_layer<T, D>& operator[](int i) const { return layers_[static_cast<std::size_t>(i)]; }
    const std::string& name(int i) const { return names_[static_cast<std::size_t>(i)]; }

    /// The pass of layer i. All layers but the first, or the first behind frozen ones, must hand a gradient on.
    pass_context context_of(int i, const pass_context& p) const {
        pass_context of = p.child(name(i));
        of.input_gradient = p.input_gradient || i > first_trained();
        return of;
    }
    /// Whether layer i or one before it has a use for gradients.
    bool needs_backward(int i, const pass_context& p) const { return p.input_gradient || i >= first_trained(); }
    /// The first layer that trains where there are frozen ones before it, size() where none does; else 0.
    int first_trained() const {
        using kind = typename any_layer<T, D>::kind;
        bool behind_frozen = false;
        for (int i = 0; i < size(); ++i) {
            const kind of_layer = (*this)[i].trains();
            if (of_layer == kind::trained) return behind_frozen ? i : 0;
            behind_frozen = behind_frozen || of_layer == kind::frozen;
        }
        return behind_frozen ? size() : 0;
    }

    /// Layers [begin, end), recomputed together.
    struct segment {
        int begin, end;
    };

    /// Recomputes these segments from now on, none if the list is empty. Throws unless they are in order, apart and
    /// inside the chain.
    void recompute(std::vector<segment> segments) {
        int free = 0;
        for (const auto& [begin, end] : segments) {
            require(free <= begin && begin < end && end <= size(), "sequential: cannot recompute layers ", begin,
                    " to ", end, " of ", size(), " after those up to ", free);
            free = end;
        }
        segments_ = std::move(segments);
    }
    const std::vector<segment>& recomputed() const { return segments_; }

    // The phases in parts, for clients that run one layer themselves (nn/branches.hpp).

    /// Forward of the layers before `end`. Throws where layers behind are to be recomputed: their client runs them.
    tensor<T, D> forward_until(int end, tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        require(segments_.empty() || segments_.back().end <= end, "sequential: layer ", end,
                " is run by itself and cannot be recomputed");
        for (int i = 0; i < end;) {
            const segment* const again = p.training() ? segment_of(i) : nullptr;
            if (p.training() && !needs_backward(again ? again->end - 1 : i, p)) {
                const discarding drop(saved);
                x = forward_range(i, i + 1, std::move(x), saved, p);
                ++i;
            } else if (again) {
                saved.put(i, x.share());
                const discarding drop(saved);
                x = forward_range(i, again->end, std::move(x), saved, p);
                i = again->end;
            } else {
                x = forward_range(i, i + 1, std::move(x), saved, p);
                ++i;
            }
        }
        return x;
    }

    /// backward_input of layer i.
    tensor<T, D> backward_input_of(int i, tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (!needs_backward(i, p)) return {};
        restore(i, saved, p);
        return visit(i, "backward_input", [&](auto& layer) {
            return layer.backward_input(std::move(dy), saved.child(i), context_of(i, p));
        });
    }

    /// Both halves of backward of layer i; it has no saved tensors afterwards.
    tensor<T, D> backward_of(int i, tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        if (!needs_backward(i, p)) return saved.child(i).clear(), tensor<T, D>{};
        restore(i, saved, p);
        return visit(i, "backward",
                     [&](auto& layer) { return layer.backward(std::move(dy), saved.child(i), context_of(i, p)); });
    }

    /// action(layer i), under the layer's name in traces and errors.
    template <class Action>
    decltype(auto) visit(int i, const char* phase, Action&& action, const shape* in = nullptr) {
        trace_scope scope(name(i), phase, "compute");
        if (scope.active()) scope.set_layer((*this)[i].describe());
        if (scope.active() && in) scope.set_cost((*this)[i].cost(*in));
        try {
            return action((*this)[i]);
        } catch (error& e) {
            e.add_context(context(i));
            throw;
        }
    }

private:
    tensor<T, D> forward_range(int begin, int end, tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        for (int i = begin; i < end; ++i) {
            const shape in = x.shape();
            const auto run = [&](auto& layer) {
                return layer.forward(std::move(x), saved.child(i, name(i)), context_of(i, p));
            };
            x = visit(i, "forward", run, &in);
        }
        return x;
    }

    // Where a segment ends at layer i, saves its tensors by running it again.
    void restore(int i, saved_tensors<T, D>& saved, pass_context p) {
        const segment* const again = segment_of(i);
        if (!again || again->end != i + 1) return;
        p.repeated = true;
        p.curvature = nullptr;  // it has seen these inputs
        tensor<T, D> x = saved.take(again->begin);
        stash_policy<T, D>* const policy = saved.follow_for_now(nullptr);
        forward_range(again->begin, again->end, std::move(x), saved, p);
        saved.follow_for_now(policy);
    }

    // The segment that layer i belongs to, or null.
    const segment* segment_of(int i) const {
        for (const segment& s : segments_)
            if (s.begin <= i && i < s.end) return &s;
        return nullptr;
    }

    // Until its end, saved_tensors drops its tensors.
    struct discarding {
        explicit discarding(saved_tensors<T, D>& s) : saved(s), before(s.discard(true)) {}
        ~discarding() { saved.discard(before); }
        discarding(const discarding&) = delete;
        discarding& operator=(const discarding&) = delete;
        saved_tensors<T, D>& saved;
        bool before;
    };

    std::string context(int i) const { return "layer " + name(i); }

    std::vector<std::string> names_;
    std::vector<any_layer<T, D>> layers_;
    std::vector<segment> segments_;
};

CAIRN_COMPILED_CLASS(sequential)

}  // namespace cairn
