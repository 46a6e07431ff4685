#pragma once
// LAMB: You et al., ICLR 2020, "Large batch optimization for deep learning", algorithm 2: Adam's direction, each layer
// moving by a share of its own size.
//
//   m ← β1 m + (1 − β1) g,   m̂ = m / (1 − β1^t)
//   v ← β2 v + (1 − β2) g²,  v̂ = v / (1 − β2^t)
//   u = m̂ / (√v̂ + ε) + λ θ
//   r = ‖θ‖ / ‖u‖                    trust ratio of one parameter; 1 when either norm is 0
//   θ ← θ − η r u
//
// Biases, scales and shifts (decay = false) take r = 1 and λ = 0. No bound on ‖θ‖ (φ is the identity).
//
// State: m, v. Two passes, u computed in both: read θ, g, m, v, write m, v; read θ, m, v, write θ: 40 bytes per float.
// Compile with -fno-math-errno, see adam.hpp.
// Tested against a plain loop in double and a step worked out by hand.

#include <cairn/core/compiled.hpp>
#include <cairn/optim/adam.hpp>

namespace cairn {

/// The formula for one scalar: the moments, and the direction that follows from them.
template <class T>
struct lamb_rule {
    T beta1, beta2, rest1, rest2, unbias1, unbias2, eps, decay;

    CAIRN_HD void gather(T g, T& m, T& v) const {
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * g * g;
    }
    CAIRN_HD T direction(T theta, T m, T v) const {
        return unbias1 * m / (std::sqrt(unbias2 * v) + eps) + decay * theta;
    }
};

/// The moments change; ‖θ‖² and ‖direction‖² are summed.
template <class T>
struct lamb_gather {
    lamb_rule<T> rule;
    CAIRN_HD void operator()(double& theta2, double& u2, T value, T g, T& m, T& v) const {
        rule.gather(g, m, v);
        const auto u = static_cast<double>(rule.direction(value, m, v));
        theta2 += static_cast<double>(value) * static_cast<double>(value);
        u2 += u * u;
    }
};

template <class T>
struct lamb_apply {
    lamb_rule<T> rule;
    T rate;  // η r
    CAIRN_HD void operator()(T& value, T m, T v) const { value -= rate * rule.direction(value, m, v); }
};

/// The same with a trust ratio that the device has computed.
template <class T>
struct lamb_apply_there {
    lamb_rule<T> rule;
    double lr;
    const double* ratio;
    CAIRN_HD lamb_apply<T> at_hand() const { return {rule, T(lr * *ratio)}; }
    CAIRN_HD void operator()(T& value, T m, T v) const { at_hand()(value, m, v); }
};

/// Trust ratio r, from the squares of the norms of a parameter and of its direction.
struct lamb_ratio {
    bool wanted;
    CAIRN_HD double operator()(double theta2, double u2) const {
        return wanted && theta2 > 0 && u2 > 0 ? std::sqrt(theta2 / u2) : 1;
    }
};

/// Adam with layer-wise trust ratios.
struct lamb {
    static constexpr const char* name = "lamb";
    static constexpr bool capturable = true, sums_over_slices = true;
    struct config {
        double beta1 = 0.9, beta2 = 0.999;
        double eps = 1e-6;
        double weight_decay = 0.01;
    } c;
    template <class T, Device D>
    using state = adam::state<T, D>;

    template <class T, Device D>
    void update(tensor<T, D>& theta, tensor<T, D>& grad, state<T, D>& s, const update_context& at) const {
        const auto unbias = [&](double beta) { return T(1 / (1 - std::pow(beta, static_cast<double>(at.number)))); };
        lamb_rule<T> rule{T(c.beta1),      T(c.beta2),      T(1 - c.beta1), T(1 - c.beta2),
                          unbias(c.beta1), unbias(c.beta2), T(c.eps),       T(at.decay ? c.weight_decay : 0)};
        if (at.unit_gradient) rule.beta2 = rule.rest2 = 0, rule.eps = 1;  // see adam.hpp
        const lamb_gather<T> gather{rule};
        const lamb_ratio ratio{at.decay};
        if constexpr (std::same_as<D, cpu>) {  // the host has the sums, and adds those of other slices
            const auto [theta2, u2] = whole_sums(
                at, sum_each(cpu{}, theta.size(), gather, theta.data(), grad.data(), s.m.data(), s.v.data()));
            for_each(lamb_apply<T>{rule, T(at.lr * ratio(theta2, u2))}, theta, s.m, s.v);
        } else {
            const update_scratch<D> r(at);
            sum_each_into(at, gather, ratio, r.data(), theta, grad, s.m, s.v);
            change_each(at, lamb_apply_there<T>{rule, at.lr, r.data()}, theta, s.m, s.v);
        }
    }

    void check() const { adam{{c.beta1, c.beta2, c.eps, c.weight_decay}}.check(); }
};

CAIRN_COMPILED_OPTIMIZER(lamb)

}  // namespace cairn
