#pragma once
// Stochastic gradient descent with momentum: Polyak (1964); Nesterov's form as in Sutskever et al., ICML 2013.
//
//   g ← g + λ θ                      weight decay as an L2 penalty              (sgd)
//   v ← μ v + g                      velocity; dampening 0
//   d = v,  or  g + μ v              plain, or Nesterov
//   θ ← θ − η d                      η: learning rate, typically 0.1 · batch / 256 for image networks
//
// sgdw decays apart from the gradient (Loshchilov & Hutter, ICLR 2019): g is left alone, the last line is
//   θ ← θ − η d − η λ θ
//
// The learning rate multiplies v when it is used, not when it is gathered, as in PyTorch: after a change of η the old
// velocity counts with the new η.
//
// State: v. Bytes per float: read θ, g, v, write θ, v: 20.
// Tested against a plain loop in double and numbers worked out by hand, which PyTorch gives as well.

#include <cairn/core/compiled.hpp>
#include <cairn/optim/optimizer.hpp>

namespace cairn {

/// The formula for one scalar.
template <class T>
struct sgd_rule {
    T lr, momentum, l2, shrink;  // shrink = η λ of decoupled decay
    bool nesterov;

    CAIRN_HD void operator()(T& theta, T g, T& v) const {
        g += l2 * theta;
        v = momentum * v + g;
        const T d = nesterov ? g + momentum * v : v;
        theta -= lr * d + shrink * theta;
    }
};

/// SGD with momentum and L2 weight decay.
struct sgd {
    static constexpr const char* name = "sgd";
    static constexpr bool capturable = true;
    struct config {
        double momentum = 0.9;    // μ
        double weight_decay = 0;  // λ
        bool nesterov = false;
    } c;

    template <class T, Device D>
    struct state {
        static constexpr std::array<const char*, 1> names{"velocity"};
        tensor<T, D> velocity;
    };

    template <class T>
    sgd_rule<T> rule(const update_context& at) const {
        return {T(at.lr), T(c.momentum), T(at.decay ? c.weight_decay : 0), T(0), c.nesterov};
    }

    void check() const {
        require(c.momentum >= 0 && c.momentum < 1, "sgd: momentum ", c.momentum, "; it must be in [0, 1)");
        require(c.weight_decay >= 0, "sgd: weight decay ", c.weight_decay, "; it must not be negative");
    }
};

/// SGD with momentum and decoupled weight decay.
struct sgdw {
    static constexpr const char* name = "sgdw";
    static constexpr bool capturable = true;
    using config = sgd::config;
    config c;
    template <class T, Device D>
    using state = sgd::state<T, D>;

    template <class T>
    sgd_rule<T> rule(const update_context& at) const {
        return {T(at.lr), T(c.momentum), T(0), T(at.decay ? at.lr * c.weight_decay : 0), c.nesterov};
    }

    void check() const { sgd{c}.check(); }
};

CAIRN_COMPILED_OPTIMIZER(sgd)
CAIRN_COMPILED_OPTIMIZER(sgdw)

}  // namespace cairn
