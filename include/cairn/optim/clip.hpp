#pragma once
// Gradient clipping: a wrapper around an optimizer that is an optimizer itself.
//   clipped{adam{}, by_norm{1.0}}     g ← g · min(1, max_norm / ‖g of the whole model‖)   (Pascanu et al., ICML 2013)
//   clipped{sgd{}, by_value{0.5}}     g ← min(max(g, −limit), limit), each value by itself
// Around an elementwise optimizer the clipping is part of its launch and moves no bytes; around a layer-wise one it is
// a pass over the gradient in place. The norm is of the gradients after backward; bound_optimizer has it from its check
// for NaN.

#include <cairn/optim/optimizer.hpp>

#include <algorithm>
#include <concepts>
#include <string>
#include <type_traits>

namespace cairn {

namespace functors {

/// g · scale; with `norm`, a number of the device's memory, the scale that brings it down to `most`.
template <class T>
struct scaled {
    T scale;
    const double* norm = nullptr;
    double most = 0;
    CAIRN_HD scaled at_hand() const { return norm ? scaled{*norm > most ? T(most / *norm) : T(1)} : scaled{scale}; }
    CAIRN_HD T operator()(T g) const { return g * scale; }
};

/// g within ± most.
template <class T>
struct bounded {
    T most;
    CAIRN_HD T operator()(T g) const { return g > most ? most : g < -most ? -most : g; }
};

/// An optimizer's rule on changed gradients.
template <class T, class Change, class Rule>
struct on_changed {
    Change change;
    Rule rule;
    template <class... S>
    requires std::invocable<const Rule&, T&, T, S&...> CAIRN_HD void operator()(T& theta, T g, S&... s) const {
        rule(theta, change(g), s...);
    }
    CAIRN_HD auto at_hand() const {
        using change_now = decltype(cairn::at_hand(change));
        using rule_now = decltype(cairn::at_hand(rule));
        return on_changed<T, change_now, rule_now>{cairn::at_hand(change), cairn::at_hand(rule)};
    }
};

/// g = change(g).
template <class T, class Change>
struct in_place {
    Change change;
    CAIRN_HD void operator()(T& g) const { g = change(g); }
    CAIRN_HD auto at_hand() const { return in_place<T, decltype(cairn::at_hand(change))>{cairn::at_hand(change)}; }
};

}  // namespace functors

/// Limits the norm of all gradients together.
struct by_norm {
    double max_norm = 1;
    static constexpr bool capturable = true;

    template <class T>
    auto change(const update_context& at) const {
        if (at.unit_gradient) return functors::scaled<T>{T(1)};
        if (at.device_norm) return functors::scaled<T>{T(1), at.device_norm, max_norm};
        const double scale = at.gradient_norm > max_norm ? max_norm / at.gradient_norm : 1;
        return functors::scaled<T>{static_cast<T>(scale)};
    }
    void check() const { require(max_norm > 0, "clipped: max_norm ", max_norm, "; it must be positive"); }
};

/// Limits each value.
struct by_value {
    double limit = 1;
    static constexpr bool capturable = true;

    template <class T>
    auto change(const update_context&) const {
        return functors::bounded<T>{static_cast<T>(limit)};
    }
    void check() const { require(limit > 0, "clipped: limit ", limit, "; it must be positive"); }
};

/// Optimizer O on clipped gradients.
template <class O, class Limit = by_norm>
struct clipped {
    O inner;
    Limit limit;

    inline static const std::string name = concat("clipped ", O::name);
    static constexpr bool capturable = Capturable<O> && Capturable<Limit>;
    static constexpr bool sums_over_slices = SumsOverSlices<O>;
    using config = typename O::config;
    template <class T, Device D>
    using state = typename O::template state<T, D>;

    template <class T>
        requires ElementwiseOptimizer<O, T>
    auto rule(const update_context& at) const {
        const auto change = limit.template change<T>(at);
        const auto of_inner = inner.template rule<T>(at);
        using changed =
            functors::on_changed<T, std::remove_const_t<decltype(change)>, std::remove_const_t<decltype(of_inner)>>;
        return changed{change, of_inner};
    }

    template <class T, Device D>
        requires(!ElementwiseOptimizer<O, T>)
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_context& at) const {
        const auto change = limit.template change<T>(at);
        change_each(at, functors::in_place<T, std::remove_const_t<decltype(change)>>{change}, grad);
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
