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

#include <cmath>

namespace cairn {

/// sgd_rule on a gradient that is scaled by the trust ratio.
template <class T>
struct lars_rule {
    sgd_rule<T> inner;
    T ratio;
    CAIRN_HD void operator()(T& theta, T g, T& v) const { inner(theta, ratio * g, v); }
};

/// The same with a trust ratio that the device has computed.
template <class T>
struct lars_rule_there {
    T lr, momentum;
    double decay;
    const double* ratio;
    CAIRN_HD lars_rule<T> at_hand() const { return {{lr, momentum, T(*ratio * decay), T(0), false}, T(*ratio)}; }
    CAIRN_HD void operator()(T& theta, T g, T& v) const { at_hand()(theta, g, v); }
};

/// ‖θ‖² and ‖g‖² are summed.
template <class T>
struct lars_squares {
    CAIRN_HD void operator()(double& theta2, double& g2, T theta, T g) const {
        theta2 += static_cast<double>(theta) * static_cast<double>(theta);
        g2 += static_cast<double>(g) * static_cast<double>(g);
    }
};

/// SGD with momentum and layer-wise trust ratios.
struct lars {
    static constexpr const char* name = "lars";
    static constexpr bool capturable = true, sums_over_slices = true;
    struct config {
        double momentum = 0.9;             // μ
        double weight_decay = 5e-4;        // λ
        double trust_coefficient = 0.001;  // τ
        double eps = 1e-8;                 // ε
        bool clip = false;                 // LARC
    } c;
    /// Trust ratio of a parameter, from the squares of its norm and its gradient's.
    struct trust_ratio {
        config c;
        double lr;
        CAIRN_HD double operator()(double theta2, double g2) const {
            return of_norms(std::sqrt(theta2), std::sqrt(g2));
        }
        CAIRN_HD double of_norms(double theta, double g) const {
            if (theta == 0 || g == 0) return 1;
            const double r = c.trust_coefficient * theta / (g + c.weight_decay * theta + c.eps);
            return c.clip && r / lr > 1 ? 1 : c.clip ? r / lr : r;
        }
    };

    template <class T, Device D>
    using state = sgd::state<T, D>;

    template <class T, Device D>
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_context& at) const {
        const auto with = [&](double r) {
            const T l2 = T(r * (at.decay ? c.weight_decay : 0));
            return lars_rule<T>{{T(at.lr), T(c.momentum), l2, T(0), false}, T(r)};
        };
        if (!at.decay) {
            change_each(at, with(1), theta, grad, s.velocity);
        } else if constexpr (std::same_as<D, cpu>) {  // the host has the sums, and adds those of other slices
            const auto [theta2, g2] = whole_sums(at, {sum_of_squares(cpu{}, theta.size(), theta.data()),
                                                      sum_of_squares(cpu{}, grad.size(), grad.data())});
            change_each(at, with(ratio(std::sqrt(theta2), std::sqrt(g2), at.lr)), theta, grad, s.velocity);
        } else {
            const update_scratch<D> r(at);
            sum_each_into(at, lars_squares<T>{}, trust_ratio{c, at.lr}, r.data(), theta, grad);
            const lars_rule_there<T> rule{T(at.lr), T(c.momentum), c.weight_decay, r.data()};
            change_each(at, rule, theta, grad, s.velocity);
        }
    }

    /// Trust ratio of a parameter with norm `theta` and gradient norm `g`.
    double ratio(double theta, double g, double lr) const { return trust_ratio{c, lr}.of_norms(theta, g); }

    void check() const {
        sgd{{.momentum = c.momentum, .weight_decay = c.weight_decay}}.check();
        require(c.trust_coefficient > 0 && c.eps >= 0, "lars: trust ", c.trust_coefficient, " and eps ", c.eps,
                "; trust must be positive, eps not negative");
    }
};

CAIRN_COMPILED_OPTIMIZER(lars)

}  // namespace cairn
