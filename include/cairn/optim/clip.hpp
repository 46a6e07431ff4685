#pragma once
// Gradient clipping: a wrapper around an optimizer that is an optimizer itself.
//   clipped{adam{}, by_norm{1.0}}     g ← g · min(1, max_norm / ‖g of the whole model‖)   (Pascanu et al., ICML 2013)
//   clipped{sgd{}, by_value{0.5}}     g ← min(max(g, −limit), limit), each value by itself
// Around an elementwise optimizer the clipping is part of its launch and moves no bytes; around a layer-wise one it is
// a pass over the gradient in place. The norm is that of the gradients as backward left them; optimizer_over has it
// from its check for NaN.

#include <cairn/optim/optimizer.hpp>

#include <algorithm>
#include <string>

namespace cairn {

/// Limits the norm of all gradients together.
struct by_norm {
    double max_norm = 1;

    template <class T>
    auto change(const update_step& at) const {
        const double scale = at.gradient_norm > max_norm ? max_norm / at.gradient_norm : 1;
        return [scale = static_cast<T>(scale)](T g) { return g * scale; };
    }
    void check() const { require(max_norm > 0, "clipped: max_norm ", max_norm, "; it must be positive"); }
};

/// Limits each value.
struct by_value {
    double limit = 1;

    template <class T>
    auto change(const update_step&) const {
        return [most = static_cast<T>(limit)](T g) { return g > most ? most : g < -most ? -most : g; };
    }
    void check() const { require(limit > 0, "clipped: limit ", limit, "; it must be positive"); }
};

/// Optimizer O on clipped gradients.
template <class O, class Limit = by_norm>
struct clipped {
    O inner;
    Limit limit;

    inline static const std::string name = concat("clipped ", O::name);
    using config = typename O::config;
    template <class T, Device D>
    using state = typename O::template state<T, D>;

    template <class T>
        requires ElementwiseOptimizer<O, T>
    auto rule(const update_step& at) const {
        return [change = limit.template change<T>(at), rule = inner.template rule<T>(at)](T& theta, T g, auto&... s) {
            rule(theta, change(g), s...);
        };
    }

    template <class T, Device D>
        requires(!ElementwiseOptimizer<O, T>)
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_step& at) const {
        for_each([change = limit.template change<T>(at)](T& g) { g = change(g); }, grad);
        inner.update(theta, grad, s, at);
    }

    void check() const {
        inner.check();
        limit.check();
    }
};

template <class O, class Limit>
clipped(O, Limit) -> clipped<O, Limit>;

}  // namespace cairn
