#pragma once
// Adam: Kingma & Ba, ICLR 2015, algorithm 1.   t: number of the update, from 1
//
//   g ← g + λ θ                                       weight decay as an L2 penalty        (adam)
//   m ← β1 m + (1 − β1) g       m̂ = m / (1 − β1^t)    mean of the gradient, start-up bias taken out
//   v ← β2 v + (1 − β2) g²      v̂ = v / (1 − β2^t)    mean of its square
//   θ ← θ − η m̂ / (√v̂ + ε)                            η: learning rate, 0.001 in the paper
//
// adamw decays apart from the gradient (Loshchilov & Hutter, ICLR 2019): g is left alone, the last line is
//   θ ← θ − η m̂ / (√v̂ + ε) − η λ θ
//
// Gradients of root mean square 1 (a preconditioner's) are not divided, which would leave about their signs: v stays 0,
// ε is 1,  θ ← θ − η m̂
//
// State: m, v. Bytes per float: read θ, g, m, v, write θ, m, v: 28.
// Compile with -fno-math-errno: else std::sqrt may set errno and keeps the loop from being vectorised (10 × slower).
// Tested against a plain loop in double and against PyTorch's numbers.

#include <cairn/core/compiled.hpp>
#include <cairn/optim/optimizer.hpp>

#include <cmath>

namespace cairn {

/// The formula for one scalar.
template <class T>
struct adam_rule {
    T lr, beta1, beta2, rest1, rest2;  // rest = 1 − β
    T unbias1, unbias2;                // 1 / (1 − β^t)
    T eps, l2, shrink;                 // shrink = η λ of decoupled decay

    CAIRN_HD void operator()(T& theta, T g, T& m, T& v) const {
        g += l2 * theta;
        m = beta1 * m + rest1 * g;
        v = beta2 * v + rest2 * g * g;
        const T m_hat = unbias1 * m, v_hat = unbias2 * v;
        theta -= lr * m_hat / (std::sqrt(v_hat) + eps) + shrink * theta;
    }
};

/// Adam with L2 weight decay.
struct adam {
    static constexpr const char* name = "adam";
    static constexpr bool capturable = true;
    struct config {
        double beta1 = 0.9, beta2 = 0.999;
        double eps = 1e-8;        // ε, outside the root
        double weight_decay = 0;  // λ
    } c;

    template <class T, Device D>
    struct state {
        static constexpr std::array<const char*, 2> names{"m", "v"};
        tensor<T, D> m, v;
    };

    template <class T>
    adam_rule<T> rule(const update_context& at) const {
        return make_rule<T>(at, at.decay ? c.weight_decay : 0, 0);
    }

    void check() const {
        require(c.beta1 >= 0 && c.beta1 < 1 && c.beta2 >= 0 && c.beta2 < 1, "adam: betas ", c.beta1, " and ", c.beta2,
                "; they must be in [0, 1)");
        require(c.eps > 0, "adam: eps ", c.eps, "; it must be positive");
        require(c.weight_decay >= 0, "adam: weight decay ", c.weight_decay, "; it must not be negative");
    }

    /// The rule with penalty `l2` in the gradient and decoupled decay `shrink`.
    template <class T>
    adam_rule<T> make_rule(const update_context& at, double l2, double shrink) const {
        const auto unbias = [&](double beta) { return T(1 / (1 - std::pow(beta, static_cast<double>(at.number)))); };
        const T lr = T(at.lr), beta1 = T(c.beta1), rest1 = T(1 - c.beta1);
        if (at.unit_gradient) return {lr, beta1, 0, rest1, 0, unbias(c.beta1), 1, 1, T(l2), T(shrink)};
        return {lr,       beta1, T(c.beta2), rest1, T(1 - c.beta2), unbias(c.beta1), unbias(c.beta2),
                T(c.eps), T(l2), T(shrink)};
    }
};

/// Adam with decoupled weight decay.
struct adamw {
    static constexpr const char* name = "adamw";
    static constexpr bool capturable = true;
    struct config {
        double beta1 = 0.9, beta2 = 0.999;
        double eps = 1e-8;
        double weight_decay = 0.01;
    } c;
    template <class T, Device D>
    using state = adam::state<T, D>;

    template <class T>
    adam_rule<T> rule(const update_context& at) const {
        return as_adam().template make_rule<T>(at, 0, at.decay ? at.lr * c.weight_decay : 0);
    }

    void check() const { as_adam().check(); }

private:
    adam as_adam() const { return {{c.beta1, c.beta2, c.eps, c.weight_decay}}; }
};

CAIRN_COMPILED_OPTIMIZER(adam)
CAIRN_COMPILED_OPTIMIZER(adamw)

}  // namespace cairn
