#pragma once
// The seam that every layer satisfies.
//   y  = forward(x, saved, pass)            may be repeated with the same pass and gives the same bits
//   dx = backward_input(dy, saved, pass)    needs no weight gradient; keeps what backward_weight will need
//        backward_weight(saved, pass)       parameter gradients += …, then no saved tensor of this layer is left
// The two halves of backward are apart so that zero-bubble schedules, K-FAC and overlapped reduction are plain clients.
// Tensors are handed over by value: a layer that is given the only handle to a block may reuse it for its result.

#include <cairn/core/cost.hpp>
#include <cairn/core/parameter.hpp>
#include <cairn/device/curvature_samples.hpp>
#include <cairn/nn/add.hpp>
#include <cairn/nn/saved_tensors.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

enum class mode { train, evaluate };

/// Told during backward that a layer has added its share to the gradients of these parameters (parameter::id), in the
/// order in which
/// that happens: what overlaps a reduction with the rest of backward.
struct gradient_listener {
    virtual ~gradient_listener() = default;
    virtual void added(std::span<const int> parameters) = 0;
};

/// Processes that hold parts of one batch: layers whose result depends on the whole batch ask it for the others'
/// numbers.
struct batch_group {
    virtual ~batch_group() = default;
    virtual int size() const = 0;
    /// all[r · mine.size() …] = what process r gave, the same bits everywhere. Every process calls it alike.
    virtual void gather(std::span<const double> mine, std::span<double> all) = 0;
};

/// Σ y and Σ y² of each channel of a layer's result, (2, channels) on the layers' device: which some kernels have at
/// hand when they write y, and the next layer would read all of y for.
struct output_totals {
    float* at = nullptr;
    bool made = false;
};

/// Whether kernels may do more with sums before they round them: those of bfloat16 and float16, which are float, on
/// GPUs.
template <class T, class D>
inline constexpr bool has_epilogues = sizeof(T) < sizeof(float) && !std::same_as<D, cpu>;

/// What is the same for all layers during one forward and backward of one micro-batch.
struct pass_context {
    cairn::mode mode = cairn::mode::train;
    std::uint64_t seed = 0;       // with step and the layer's stream: the key of dropout and its like
    std::uint32_t step = 0;       // different for every micro-batch of a run
    bool repeated = false;        // forward runs again for recomputation: leave running statistics alone
    bool input_gradient = true;   // false: nobody reads dx of this layer, backward_input may return an empty tensor
    bool weight_gradient = true;  // false: nobody reads the parameters' gradients, layers may leave them as they are
    gradient_listener* listener = nullptr;    // of the last micro-batch of a step
    batch_group* group = nullptr;             // null: this batch is the whole batch
    curvature_listener* curvature = nullptr;  // told what weight gradients are made of; null: nobody wants to know
    const std::uint32_t* step_at =
        nullptr;  // where a device finds `step` if launches are recorded; null: it is part of them
    const std::int32_t* lengths =
        nullptr;  // (batch), on the layers' device, until backward: positions of each sequence that count; null: all
    output_totals* totals_of_output = nullptr;  // of forward, if the next layer takes them; null: nobody asks
    const float* totals_of_input = nullptr;     // of forward, if the layer before made them; null: nobody has them

    bool training() const { return mode == cairn::mode::train; }
    random_stream random(std::uint32_t stream) const { return {seed, stream, step}; }
};

template <class L, class T, class D>
concept LayerOver = requires(L& layer, const L& constant, tensor<T, D> t, saved_tensors<T, D>& saved,
                             const pass_context& p, const shape& in) {
    { layer.forward(std::move(t), saved, p) } -> std::same_as<tensor<T, D>>;
    { layer.backward_input(std::move(t), saved, p) } -> std::same_as<tensor<T, D>>;
    {layer.backward_weight(saved, p)};
    { layer.parameters() } -> std::same_as<layer_parameters<T, D>>;
    { constant.output_shape(in) } -> std::same_as<shape>;
    { constant.cost(in) } -> std::same_as<layer_cost>;
    { constant.describe() } -> std::convertible_to<std::string>;
};

/// A layer over its own value_type and device. Optional members, used where present:
///   buffers()                                     tensors of its state that are not trained
///   backward(dy, saved, pass)                     both halves at once, if that is cheaper or frees memory sooner
///   forward_residual(x, skip, saved, pass), backward_input_residual(dy, saved, pass) → {dx, dskip}
///                                                 y = activation(f(x) + skip) in one pass; see nn/residual.hpp
///   backward_residual(dy, saved, pass) → {dx, dskip}   both halves of that at once
///   cost_residual(in)                                  cost of that, where it is more than reading skip and writing
///                                                      dskip
///   accepts_residual()                                 with these two: whether this very object can do it
///   backward_input_onto(dy, base, saved, pass), backward_onto(…)    dx + base in one pass, empty where dx is
///   adds_base()                                   whether that is one pass wherever it is called (costs count it)
///   makes_totals()                                whether forward can fill pass_context::totals_of_output
///   takes_totals()                                whether forward and forward_residual use
///                                                 pass_context::totals_of_input
///   is_container (static constexpr true)          its parameters are those of any_layers in it, which speak for
///                                                 themselves
template <class L>
concept Layer = LayerOver<L, typename L::value_type, typename L::device>;

/// Whether the layer can fuse "+ skip" into its own result.
template <class L>
bool accepts_residual(const L& layer) {
    if constexpr (requires { layer.accepts_residual(); })
        return layer.accepts_residual();
    else
        return false;
}

template <class L>
bool adds_base(const L& layer) {
    if constexpr (requires { layer.adds_base(); })
        return layer.adds_base();
    else
        return false;
}
template <class L>
bool makes_totals(const L& layer) {
    if constexpr (requires { layer.makes_totals(); })
        return layer.makes_totals();
    else
        return false;
}
template <class L>
bool takes_totals(const L& layer) {
    if constexpr (requires { layer.takes_totals(); })
        return layer.takes_totals();
    else
        return false;
}

/// The layer's state that is not trained, empty for most.
template <Layer L>
layer_buffers<typename L::value_type, typename L::device> buffers_of(L& layer) {
    if constexpr (requires { layer.buffers(); })
        return layer.buffers();
    else
        return {};
}

/// Both halves of backward; afterwards the layer has no saved tensors.
template <Layer L>
auto backward(L& layer, tensor<typename L::value_type, typename L::device> dy,
              saved_tensors<typename L::value_type, typename L::device>& saved, const pass_context& p) {
    if constexpr (requires { layer.backward(std::move(dy), saved, p); }) {
        return layer.backward(std::move(dy), saved, p);
    } else {
        auto dx = layer.backward_input(std::move(dy), saved, p);
        layer.backward_weight(saved, p);
        saved.clear();
        return dx;
    }
}

/// dx + base, where the layer can in one pass.
template <Layer L, class Tensor>
Tensor backward_input_onto(L& layer, Tensor dy, Tensor base,
                           saved_tensors<typename L::value_type, typename L::device>& saved, const pass_context& p) {
    if constexpr (requires { layer.backward_input_onto(std::move(dy), std::move(base), saved, p); })
        return layer.backward_input_onto(std::move(dy), std::move(base), saved, p);
    else
        return add(layer.backward_input(std::move(dy), saved, p), std::move(base));
}
/// The same with both halves of backward.
template <Layer L, class Tensor>
Tensor backward_onto(L& layer, Tensor dy, Tensor base, saved_tensors<typename L::value_type, typename L::device>& saved,
                     const pass_context& p) {
    if constexpr (requires { layer.backward_onto(std::move(dy), std::move(base), saved, p); })
        return layer.backward_onto(std::move(dy), std::move(base), saved, p);
    else if constexpr (requires { layer.backward_input_onto(std::move(dy), std::move(base), saved, p); }) {
        Tensor dx = layer.backward_input_onto(std::move(dy), std::move(base), saved, p);
        layer.backward_weight(saved, p);
        saved.clear();
        return dx;
    } else
        return add(cairn::backward(layer, std::move(dy), saved, p), std::move(base));
}

/// Any layer over T and D: what containers hold.
template <class T, Device D = cpu>
class any_layer {
public:
    using value_type = T;
    using device = D;
    using residual_gradients = std::pair<tensor<T, D>, tensor<T, D>>;  // {dx, dskip}

    template <Layer L>
        requires(!std::same_as<L, any_layer>)
    any_layer(L layer) : self_(std::make_unique<model<L>>(std::move(layer))) {}

    tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& saved, const pass_context& p) {
        return self_->forward(std::move(x), saved, p);
    }
    tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return self_->backward_input(std::move(dy), saved, p);
    }
    void backward_weight(saved_tensors<T, D>& saved, const pass_context& p) {
        self_->backward_weight(saved, p);
        announce(p);
    }
    tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = self_->backward(std::move(dy), saved, p);
        announce(p);
        return dx;
    }
    tensor<T, D> backward_input_onto(tensor<T, D> dy, tensor<T, D> base, saved_tensors<T, D>& saved,
                                     const pass_context& p) {
        return self_->backward_input_onto(std::move(dy), std::move(base), saved, p);
    }
    tensor<T, D> backward_onto(tensor<T, D> dy, tensor<T, D> base, saved_tensors<T, D>& saved, const pass_context& p) {
        tensor<T, D> dx = self_->backward_onto(std::move(dy), std::move(base), saved, p);
        announce(p);
        return dx;
    }
    bool accepts_residual() const { return self_->accepts_residual(); }
    bool adds_base() const { return self_->adds_base(); }
    bool makes_totals() const { return self_->makes_totals(); }
    bool takes_totals() const { return self_->takes_totals(); }
    tensor<T, D> forward_residual(tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& saved,
                                  const pass_context& p) {
        return self_->forward_residual(std::move(x), std::move(skip), saved, p);
    }
    residual_gradients backward_input_residual(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        return self_->backward_input_residual(std::move(dy), saved, p);
    }
    residual_gradients backward_residual(tensor<T, D> dy, saved_tensors<T, D>& saved, const pass_context& p) {
        residual_gradients grads = self_->backward_residual(std::move(dy), saved, p);
        announce(p);
        return grads;
    }
    layer_parameters<T, D> parameters() { return self_->parameters(); }
    layer_buffers<T, D> buffers() { return self_->buffers(); }
    shape output_shape(const shape& in) const { return self_->output_shape(in); }
    layer_cost cost(const shape& in) const { return self_->cost(in); }
    layer_cost cost_residual(const shape& in) const { return self_->cost_residual(in); }
    std::string describe() const { return self_->describe(); }

    /// The layer itself if it is an L, else null: for code that treats one kind specially (profiles, plans).
    template <class L>
    L* as() {
        auto* held = dynamic_cast<model<L>*>(self_.get());
        return held ? &held->layer : nullptr;
    }
    template <class L>
    const L* as() const {
        const auto* held = dynamic_cast<const model<L>*>(self_.get());
        return held ? &held->layer : nullptr;
    }

private:
    void announce(const pass_context& p) {
        if (!p.listener || self_->is_container()) return;
        if (ids_.empty())
            for (const auto& [name, parameter] : self_->parameters()) ids_.push_back(parameter->id);
        if (!ids_.empty()) p.listener->added(ids_);
    }

    struct interface {
        virtual ~interface() = default;
        virtual bool is_container() const = 0;
        virtual tensor<T, D> forward(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual tensor<T, D> backward_input(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual void backward_weight(saved_tensors<T, D>&, const pass_context&) = 0;
        virtual tensor<T, D> backward(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual tensor<T, D> backward_input_onto(tensor<T, D>, tensor<T, D>, saved_tensors<T, D>&,
                                                 const pass_context&) = 0;
        virtual tensor<T, D> backward_onto(tensor<T, D>, tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual bool accepts_residual() const = 0;
        virtual bool adds_base() const = 0;
        virtual bool makes_totals() const = 0;
        virtual bool takes_totals() const = 0;
        virtual tensor<T, D> forward_residual(tensor<T, D>, tensor<T, D>, saved_tensors<T, D>&,
                                              const pass_context&) = 0;
        virtual residual_gradients backward_input_residual(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual residual_gradients backward_residual(tensor<T, D>, saved_tensors<T, D>&, const pass_context&) = 0;
        virtual layer_parameters<T, D> parameters() = 0;
        virtual layer_buffers<T, D> buffers() = 0;
        virtual shape output_shape(const shape&) const = 0;
        virtual layer_cost cost(const shape&) const = 0;
        virtual layer_cost cost_residual(const shape&) const = 0;
        virtual std::string describe() const = 0;
    };

    template <class L>
    struct model final : interface {
        explicit model(L l) : layer(std::move(l)) {}
        bool is_container() const override {
            return requires { requires L::is_container; };
        }
        tensor<T, D> forward(tensor<T, D> x, saved_tensors<T, D>& s, const pass_context& p) override {
            return layer.forward(std::move(x), s, p);
        }
        tensor<T, D> backward_input(tensor<T, D> dy, saved_tensors<T, D>& s, const pass_context& p) override {
            return layer.backward_input(std::move(dy), s, p);
        }
        void backward_weight(saved_tensors<T, D>& s, const pass_context& p) override { layer.backward_weight(s, p); }
        tensor<T, D> backward(tensor<T, D> dy, saved_tensors<T, D>& s, const pass_context& p) override {
            return cairn::backward(layer, std::move(dy), s, p);
        }
        tensor<T, D> backward_input_onto(tensor<T, D> dy, tensor<T, D> base, saved_tensors<T, D>& s,
                                         const pass_context& p) override {
            return cairn::backward_input_onto(layer, std::move(dy), std::move(base), s, p);
        }
        tensor<T, D> backward_onto(tensor<T, D> dy, tensor<T, D> base, saved_tensors<T, D>& s,
                                   const pass_context& p) override {
            return cairn::backward_onto(layer, std::move(dy), std::move(base), s, p);
        }
        bool accepts_residual() const override { return cairn::accepts_residual(layer); }
        bool adds_base() const override { return cairn::adds_base(layer); }
        bool makes_totals() const override { return cairn::makes_totals(layer); }
        bool takes_totals() const override { return cairn::takes_totals(layer); }
        tensor<T, D> forward_residual(tensor<T, D> x, tensor<T, D> skip, saved_tensors<T, D>& s,
                                      const pass_context& p) override {
            if constexpr (requires { layer.forward_residual(std::move(x), std::move(skip), s, p); })
                return layer.forward_residual(std::move(x), std::move(skip), s, p);
            else
                fail(layer.describe(), ": cannot add a skip connection");
        }
        residual_gradients backward_input_residual(tensor<T, D> dy, saved_tensors<T, D>& s,
                                                   const pass_context& p) override {
            if constexpr (requires { layer.backward_input_residual(std::move(dy), s, p); })
                return layer.backward_input_residual(std::move(dy), s, p);
            else
                fail(layer.describe(), ": cannot add a skip connection");
        }
        residual_gradients backward_residual(tensor<T, D> dy, saved_tensors<T, D>& s, const pass_context& p) override {
            if constexpr (requires { layer.backward_residual(std::move(dy), s, p); }) {
                return layer.backward_residual(std::move(dy), s, p);
            } else {
                residual_gradients grads = backward_input_residual(std::move(dy), s, p);
                layer.backward_weight(s, p);
                s.clear();
                return grads;
            }
        }
        layer_parameters<T, D> parameters() override { return layer.parameters(); }
        layer_buffers<T, D> buffers() override { return buffers_of(layer); }
        shape output_shape(const shape& in) const override { return layer.output_shape(in); }
        layer_cost cost(const shape& in) const override { return layer.cost(in); }
        layer_cost cost_residual(const shape& in) const override {
            if constexpr (requires { layer.cost_residual(in); }) {
                return layer.cost_residual(in);
            } else {
                layer_cost c = layer.cost(in);
                const double n = static_cast<double>(layer.output_shape(in).size()), size = sizeof(T);
                c.forward += {n, size * n};
                c.backward_input += {0, size * n};
                return c;
            }
        }
        std::string describe() const override { return layer.describe(); }

        L layer;
    };

    std::unique_ptr<interface> self_;
    std::vector<int> ids_;  // of its parameters, once asked for
};

}  // namespace cairn
