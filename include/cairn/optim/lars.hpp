#pragma once
// LARS: You, Gitman & Ginsburg 2017, "Large batch training of convolutional networks", algorithm 1: each layer moves by
// a set share of its own size.
//
//   r = τ ‖θ‖ / (‖g‖ + λ ‖θ‖ + ε)     trust ratio of one parameter; 1 when ‖θ‖ or ‖g‖ is 0
//   g ← r (g + λ θ)
//   v ← μ v + g
//   θ ← θ − η v
//
// With clip (LARC):  r ← min(r / η, 1), so that no layer moves faster than under plain SGD; τ = 0.02 is usual then.
// Biases, scales and shifts (decay = false) take r = 1 and λ = 0. The paper gathers η v instead of v: the same but for
// changes of η.
//
// State: v. Bytes per float: read θ, g for the norms, then read θ, g, v, write θ, v: 28.
// Tested against a plain loop in double and a step worked out by hand.

#include <cairn/core/compiled.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/optim/sgd.hpp>

#include <algorithm>

namespace cairn {

/// sgd_rule on a gradient that is scaled by the trust ratio.
template <class T>
struct lars_rule {
    sgd_rule<T> inner;
    T ratio;
    CAIRN_HD void operator()(T& theta, T g, T& v) const { inner(theta, ratio * g, v); }
};

/// SGD with momentum and layer-wise trust ratios.
struct lars {
    static constexpr const char* name = "lars";
    struct config {
        double momentum = 0.9;       // μ
        double weight_decay = 5e-4;  // λ
        double trust = 0.001;        // τ
        double eps = 1e-8;           // ε
        bool clip = false;           // LARC
    } c;
    template <class T, Device D>
    using state = sgd::state<T, D>;

    template <class T, Device D>
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_step& at) const {
        const double decay = at.decay ? c.weight_decay : 0;
        const double r = at.decay ? ratio(norm(theta), norm(grad), at.lr) : 1;
        const sgd_rule<T> rule{T(at.lr), T(c.momentum), T(r * decay), T(0), false};
        for_each(lars_rule<T>{rule, T(r)}, theta, grad, s.velocity);
    }

    /// Trust ratio of a parameter with norm `theta` and gradient norm `g`.
    double ratio(double theta, double g, double lr) const {
        if (theta == 0 || g == 0) return 1;
        const double r = c.trust * theta / (g + c.weight_decay * theta + c.eps);
        return c.clip ? std::min(r / lr, 1.0) : r;
    }

    void check() const {
        sgd{{.momentum = c.momentum, .weight_decay = c.weight_decay}}.check();
        require(c.trust > 0 && c.eps >= 0, "lars: trust ", c.trust, " and eps ", c.eps,
                "; trust must be positive, eps not negative");
    }
};

CAIRN_COMPILED_OPTIMIZER(lars)

}  // namespace cairn
