#pragma once
// The driver that applies an optimizer (optimizer_concepts.hpp) to all parameters of an arena.
//
//   bound_optimizer opt(sgd{{.momentum = 0.9, .weight_decay = 5e-4}}, parameters);    // parameters: an arena
//   opt.step(lr);
//
// An optimizer is a `config`, a `state<T, D>` (tensors that start at zero, shaped like the parameter) and one of
//   rule<T>(at) → f      elementwise: f(theta, g, state…) changes one scalar. Adjacent parameters share a launch.
//   update(theta, grad, state, at)   layer-wise: sees one parameter at a time and may take norms of it.
// Memory traffic of step(): the gradient once for its norm, then theta, gradient and each state tensor once (update).
// On a device, Capturable rules are launched before the host knows the norm of the gradients: kernels read it in the
// device's memory and change nothing if it is not finite. The host waits for that one number once the whole step is
// launched.
// Such an update can also be part of a captured step (core/captured_graph.hpp): with the rates and counts of each step
// in the device's memory (core/launch_parameters.hpp), its launches are the same every time.
//   each step:  opt.collect(lr, numbers);  numbers.send();
//               opt.launch(numbers, losses), or the captured graph of it;  opt.finish(norm)
// The gaps of an arena hold zeros, in the state too: a rule must map (0, 0, 0…) to zeros.

#include <cairn/core/arena.hpp>
#include <cairn/core/device_scalar.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/launch_parameters.hpp>
#include <cairn/core/trace.hpp>
#include <cairn/optim/norm.hpp>
#include <cairn/optim/optimizer_concepts.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace cairn {

namespace functors {

/// Makes the norm non-finite if the loss is not finite.
struct propagate_nonfinite {
    CAIRN_HD void operator()(double& norm, const double& loss) const { norm = loss - loss == 0 ? norm : loss - loss; }
};

}  // namespace functors

/// A named handle to a tensor of an optimizer's state.
template <class T, Device D = cpu>
struct named_tensor {
    std::string name;
    tensor<T, D> t;
};

namespace detail {
/// The norm of the gradients in bound_optimizer.
template <Device D, bool Ahead>
struct norm_of_step {
    struct type {  // it is a number of the host
        explicit type(memory_category) {}
    };
};
template <Device D>
struct norm_of_step<D, true> {
    using type = scalar_to_host<D>;
};
}  // namespace detail

/// Optimizer O over all parameters of an arena. It shares the arena's memory, so the arena object may move or go.
template <class O, class T, Device D = cpu>
    requires Optimizer<O, T, D>
class bound_optimizer {
public:
    using state = typename O::template state<T, D>;

    /// Allocates state for every parameter, all zero. Throws on bad hyperparameters.
    bound_optimizer(O o, arena<T, D>& parameters) : o_(std::move(o)), owned_{0, parameters.values().size()} {
        o_.check();
        if constexpr (PartialOptimizer<O>) owned_ = o_.owned();
        require(owned_.begin >= 0 && owned_.begin <= owned_.end() && owned_.end() <= parameters.values().size(),
                O::name, ": owns elements ", owned_.begin, " to ", owned_.end(), " of ", parameters.values().size());
        grads_ = parameters.grads().slice(owned_.begin, {owned_.count});
        tensor<T, D>& values = parameters.values();
        std::apply(
            [&](auto&... field) { ((field = tensor<T, D>::zeros({owned_.count}, memory_category::optimizer)), ...); },
            fields(state_));
        std::vector<range> parts;  // of grads_
        for (const auto& [name, p] : parameters.parameters()) {
            const index_t first = p->value.data() - values.data(), last = first + p->shape.size();
            const index_t begin = std::max(first, owned_.begin), end = std::max(begin, std::min(last, owned_.end()));
            parts.push_back({begin - owned_.begin, end - begin});
            if (begin >= end && first != last) continue;
            const bool whole = begin == first && end == last;
            require(whole || ElementwiseOptimizer<O, T>, O::name, ": is given a part of parameter ", name,
                    ", but it needs whole ones");
            slices_.push_back({name, whole ? p->shape : shape{end - begin}, begin, p, needs_slices(*p)});
        }
        squares_.emplace(parts);
        values_ = values.share();
    }

    /// One update of all parameters with the gradients in the arena. Returns the norm of all gradients before clipping.
    /// Throws when a gradient is not finite, naming parameter and step; parameters and state are then as they were.
    double step(double lr) {
        const trace_scope scope(o_.name, "step", "optimizer");
        update_context at = step_with(lr);
        if constexpr (ahead) {
            squares_->norm_into(grads_.data(), norm_.there());
            at.gradient_norm = norm_.sent([&] { update_all(at); });
        } else {
            std::vector<double> squares = (*squares_)(grads_.data());
            if constexpr (PartialOptimizer<O>) squares = o_.over_all(std::move(squares));
            at.gradient_norm = std::sqrt(sum_in_path_order(squares));
            if (!std::isfinite(at.gradient_norm)) throw_non_finite();
            update_all(at);
        }
        return finish(at.gradient_norm);
    }

    /// Whether collect(), launch() and finish() can take the place of step().
    static constexpr bool capturable() { return ahead; }

    /// Places the parameters of the next update's kernels. Throws on an invalid learning rate.
    void collect(double lr, launch_parameters& numbers) {
        if constexpr (ahead) {
            update_context at = step_with(lr);
            at.numbers = &numbers;
            update_all(at);
        } else {
            not_capturable();
        }
    }

    /// Launches the update whose numbers were sent, and its norm. It changes nothing if the norm of the gradients, or
    /// one of `losses`, is not finite. Nothing waits, only workspace is allocated, and the launches are the same each
    /// time.
    void launch(launch_parameters& numbers, std::span<const device_scalar<D>> losses = {}) {
        if constexpr (ahead) {
            squares_->norm_into(grads_.data(), norm_.there());
            for (const device_scalar<D>& loss : losses)
                if (const double* const there = loss.there())
                    for_each(D{}, 1, functors::propagate_nonfinite{}, norm_.there(), there);
            update_context at = step_with(0);
            at.numbers = &numbers;
            update_all(at);
        } else {
            not_capturable();
        }
    }

    /// The norm of the gradients in that update, in the device's memory.
    device_scalar<D> norm_of_update() const {
        if constexpr (ahead)
            return norm_.number();
        else
            not_capturable();
    }

    /// The end of step(), with the norm: throws if it is not finite, otherwise counts the update.
    double finish(double norm) {
        if (!std::isfinite(norm)) throw_non_finite();
        ++steps_;
        return norm;
    }

    /// Updates done so far. A reference, so that a saved state can set it.
    std::int64_t& steps() { return steps_; }
    std::int64_t steps() const { return steps_; }
    const O& rule() const { return o_; }

    /// Handles to the state of every parameter, named "velocity/conv1/weight", for snapshots; steps() belongs to it.
    std::vector<named_tensor<T, D>> tensors() {
        std::vector<named_tensor<T, D>> all;
        for (std::size_t k = 0; k < state::names.size(); ++k)
            for (const slice& p : slices_) {
                const state part = slice_of_state(p.begin, p.shape);
                std::apply(
                    [&, i = std::size_t{0}](const auto&... field) mutable {
                        ((i++ == k ? all.push_back({concat(state::names[k], '/', p.name), field.share()}) : void()),
                         ...);
                    },
                    fields(part));
            }
        return all;
    }

    /// The elements of the arena that this optimizer updates, and its state for them, flat: "velocity", ….
    range owned() const { return owned_; }
    std::vector<named_tensor<T, D>> flat_state() {
        std::vector<named_tensor<T, D>> all;
        std::apply(
            [&](auto&... field) {
                (all.push_back({state::names[all.size()], field.share()}), ...);
            },
            fields(state_));
        return all;
    }

    /// Passes over memory that one step() starts: spans for elementwise optimizers, parameters for layer-wise ones.
    std::size_t launches() { return runs().size(); }

private:
    // Of several ranks, the norm of the others' gradients comes by way of the host.
    static constexpr bool ahead = CopiesOut<D> && Capturable<O> && !PartialOptimizer<O>;
    using norm_to_host = typename detail::norm_of_step<D, ahead>::type;

    struct slice {
        std::string name;
        cairn::shape shape;
        index_t begin;
        const parameter<T, D>* of;
        bool sliced;

        bool updates_as(const slice& s) const {
            return of->decay == s.of->decay && of->unit_gradient == s.of->unit_gradient;
        }
    };
    struct run_of_memory {
        tensor<T, D> theta, grad;
        state s;
        bool decay, unit_gradient, sliced;
    };

    // Made at the first update, when a preconditioner has marked what it gives unit gradients.
    std::vector<run_of_memory>& runs() {
        if (!launches_.empty()) return launches_;
        for (std::size_t i = 0; i < slices_.size(); ++i) {
            const slice& first = slices_[i];
            index_t end = first.begin + first.shape.size();
            shape extent = first.shape;
            if constexpr (ElementwiseOptimizer<O, T>) {  // one launch up to the next change of a flag
                while (i + 1 < slices_.size() && slices_[i + 1].updates_as(first)) {
                    ++i;
                    end = slices_[i].begin + slices_[i].shape.size();
                }
                extent = {end - first.begin};
            }
            launches_.push_back({values_.slice(first.begin, extent), grads_.slice(first.begin - owned_.begin, extent),
                                 slice_of_state(first.begin, extent), first.of->decay, first.of->unit_gradient,
                                 first.sliced});
        }
        return launches_;
    }

    // Whether the update needs sums over slices of this parameter that are elsewhere. Throws where it cannot have them:
    // on a device, whose sums stay there, a collective of the host between two launches would wait for each parameter.
    bool needs_slices(const parameter<T, D>& p) const {
        if (ElementwiseOptimizer<O, T> || p.layout.is_whole() || p.layout.global == p.shape) return false;
        require(std::same_as<D, cpu> && SumsOverSlices<O> && slices_sum(), O::name, ": parameter ", p.name,
                " is a slice ", p.shape, " of ", p.layout.global,
                ", but a layer-wise optimizer needs sums over the whole; use ",
                "an elementwise optimizer, or lamb or lars on the host with sum_over_slices (parallel/sharded.hpp)");
        return true;
    }
    const std::function<void(std::span<double>)>* slices_sum() const {
        if constexpr (requires { o_.sum_over_slices; })
            return o_.sum_over_slices ? &o_.sum_over_slices : nullptr;
        else
            return nullptr;
    }

    update_context step_with(double lr) {
        require(std::isfinite(lr) && lr >= 0, O::name, " step ", steps_ + 1, ": learning rate ", lr,
                "; it must be finite and >= 0");
        update_context at{.number = steps_ + 1, .lr = lr};
        if constexpr (ahead) {
            at.device_norm = norm_.there();
            at.device_scratch = norm_.beside();
        }
        return at;
    }

    [[noreturn]] static void not_capturable() {
        fail(O::name, ": its update cannot be launched without the host's word on ", D::name);
    }

    void update_all(update_context at) {
        for (run_of_memory& l : runs()) {
            at.decay = l.decay;
            at.unit_gradient = l.unit_gradient;
            at.over_slices = l.sliced ? slices_sum() : nullptr;
            update(o_, l.theta, l.grad, l.s, at);
        }
    }

    state slice_of_state(index_t begin, const shape& extent) {
        return std::apply([&](auto&... field) { return state{field.slice(begin - owned_.begin, extent)...}; },
                          fields(state_));
    }

    [[noreturn]] void throw_non_finite() const {
        for (const slice& p : slices_) {
            const tensor<T> g = grads_.slice(p.begin - owned_.begin, p.shape).on_host(memory_category::workspace);
            if (const auto at = first_non_finite(g))
                fail_divergence(O::name, " step ", steps_ + 1, ": gradient of ", p.name, ' ', p.shape,
                                " is not finite: element ", *at, " is ", static_cast<double>(g[*at]),
                                "; nothing was updated. Lower the learning rate, warm up, or clip");
        }
        fail_divergence(O::name, " step ", steps_ + 1, ": the norm of the gradients is not finite",
                        PartialOptimizer<O> ? " (in another rank's part)" : " (it overflows)", "; nothing was updated");
    }

    O o_;
    state state_;
    range owned_;
    tensor<T, D> values_;                             // of the arena
    tensor<T, D> grads_;                              // of owned_
    std::optional<squares_by_parameter<D>> squares_;  // of grads_
    norm_to_host norm_{memory_category::optimizer};
    std::vector<slice> slices_;
    std::vector<run_of_memory> launches_;
    std::int64_t steps_ = 0;
};

template <class O, class T, Device D>
bound_optimizer(O, arena<T, D>&) -> bound_optimizer<O, T, D>;

}  // namespace cairn
