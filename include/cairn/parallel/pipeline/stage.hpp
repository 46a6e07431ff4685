#pragma once
// Consecutive layers of a model with the arena of their parameters, and what each micro-batch in flight has left for
// its backward. A rank without a pipeline has one stage: the whole model.

#include <cairn/core/arena.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/nn/layer.hpp>
#include <cairn/nn/saved_tensors.hpp>

#include <cstddef>
#include <functional>
#include <utility>
#include <vector>

namespace cairn {

/// See the top of the file. Layers and arena must outlive it.
template <Layer L>
class stage {
public:
    using T = typename L::value_type;
    using D = typename L::device;

    stage(L& layers, arena<weight_of<T>, D>& weights) : layers_(layers), weights_(weights) {}

    L& layers() { return layers_; }
    arena<weight_of<T>, D>& weights() { return weights_; }

    /// Is told in the last backward of a step which gradients are final; may be null.
    gradient_listener* listener = nullptr;
    /// The treatment of activations between forward and backward; null: they are kept.
    stash_policy<T, D>* policy = nullptr;
    /// Called before the last backward of a step.
    std::function<void()> before_last_backward = {};

    /// Starts micro-batch m: the output for x. Its backward runs with the same pass.
    tensor<T, D> forward(int m, tensor<T, D> x, const pass_context& p) {
        const trace_scope scope("", "forward", "phase");
        if (static_cast<std::size_t>(m) >= in_flight_.size()) in_flight_.resize(static_cast<std::size_t>(m) + 1);
        flight& f = of(m);
        f.pass = p;
        if (policy) f.saved.follow(policy, {.samples = {p.random.first_sample, x.extent(0)}});
        tensor<T, D> y = layers_.forward(std::move(x), f.saved, p);
        if (policy) policy->forward_ended();
        return y;
    }
    /// No backward of micro-batch m follows.
    void forget(int m) { of(m) = {}; }
    /// The gradient over the output of micro-batch m, until its backward takes it.
    void set_output_gradient(int m, tensor<T, D> dy) { of(m).dy = std::move(dy); }

    /// Both halves of backward; `last`: no other backward of this step follows. Returns the gradient over the input.
    tensor<T, D> backward(int m, bool last) {
        const trace_scope scope("", "backward", "phase");
        flight& f = of(m);
        return cairn::backward(layers_, std::move(f.dy), f.saved, begin_backward(f, last));
    }
    tensor<T, D> backward_input(int m) {
        const trace_scope scope("", "backward_input", "phase");
        flight& f = of(m);
        return layers_.backward_input(std::move(f.dy), f.saved, f.pass);
    }
    void backward_weight(int m, bool last) {
        const trace_scope scope("", "backward_weight", "phase");
        flight& f = of(m);
        layers_.backward_weight(f.saved, begin_backward(f, last));
    }

private:
    struct flight {
        pass_context pass;
        saved_tensors<T, D> saved;
        tensor<T, D> dy;
    };

    flight& of(int m) {
        require(static_cast<std::size_t>(m) < in_flight_.size(), "stage: backward of micro-batch ", m,
                " without its forward");
        return in_flight_[static_cast<std::size_t>(m)];
    }

    const pass_context& begin_backward(flight& f, bool last) {
        if (last && before_last_backward) before_last_backward();
        f.pass.listener = last ? listener : nullptr;
        return f.pass;
    }

    L& layers_;
    arena<weight_of<T>, D>& weights_;
    std::vector<flight> in_flight_;  // by micro-batch
};

}  // namespace cairn
