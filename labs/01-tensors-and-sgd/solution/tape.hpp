#pragma once
// Lab 1, task 1: automatic differentiation in reverse mode, on a tape of scalars.
//
//   forward    every operation appends a node: its value, its operands, and the value's derivative by each operand
//   backward   from a result L, with v̄ = ∂L/∂v: L̄ = 1, all others 0; then for each node v, last one first, and for
//              each of its operands u:   ū ← ū + v̄ ∂v/∂u
//
// A node stands behind its operands. So when its turn comes in backward, all that use it have had theirs, and v̄ is
// complete.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

class tape;

/// A number on a tape, known by the place of its node. Copies are the same number. Given.
struct variable {
    tape* on;
    std::size_t at;

    double value() const;
    double gradient() const;
};

/// An operand of a node, and the derivative of the node's value by it.
struct edge {
    std::size_t operand;
    double derivative;
};

class tape {
public:
    struct node {
        double value;
        double gradient = 0;  // what backward passes have added since zero_gradients
        std::array<edge, 2> operands{};
        std::size_t count = 0;  // of operands: 0, 1 or 2
    };

    /// A number that is computed from no other: an input, a parameter, a constant. Given.
    variable input(double value) { return add({value}); }

    /// Task 1a. The result of an operation with one operand, and with two: they append one node.
    variable record(double value, edge a) {
        //! solution
        return add({value, 0, {a}, 1});
        //! starter
        // (void)value, (void)a;
        // throw std::logic_error("task 1a: tape::record of one operand is not written yet");
        //! end
    }
    variable record(double value, edge a, edge b) {
        //! solution
        return add({value, 0, {a, b}, 2});
        //! starter
        // (void)value, (void)a, (void)b;
        // throw std::logic_error("task 1a: tape::record of two operands is not written yet");
        //! end
    }

    /// Task 1c. Adds ∂result/∂v to the gradient of every node v. One sweep, without recursion: a tape may be long. What
    /// earlier calls have left in `gradient` is added to, and does not change what is added.
    void backward(variable result) {
        //! solution
        std::vector<double> adjoint(result.at + 1, 0.0);  // of this sweep: ∂result/∂v
        adjoint[result.at] = 1;
        for (std::size_t i = result.at + 1; i-- > 0;) {
            node& v = nodes_[i];
            v.gradient += adjoint[i];
            for (std::size_t k = 0; k < v.count; ++k)
                adjoint[v.operands[k].operand] += adjoint[i] * v.operands[k].derivative;
        }
        //! starter
        // (void)result;
        // throw std::logic_error("task 1c: tape::backward is not written yet");
        //! end
    }

    /// Task 1c. All gradients are 0 again; the nodes and their values stay.
    void zero_gradients() {
        //! solution
        for (node& v : nodes_) v.gradient = 0;
        //! starter
        // (void)nodes_;
        // throw std::logic_error("task 1c: tape::zero_gradients is not written yet");
        //! end
    }

    const std::vector<node>& nodes() const { return nodes_; }

private:
    variable add(node n) {
        nodes_.push_back(n);
        return {this, nodes_.size() - 1};
    }

    std::vector<node> nodes_;
};

inline double variable::value() const { return on->nodes()[at].value; }
inline double variable::gradient() const { return on->nodes()[at].gradient; }

/// Task 1b. Each operation records its value and its derivatives. Both operands are on one tape.
inline variable operator+(variable a, variable b) {
    //! solution
    return a.on->record(a.value() + b.value(), {a.at, 1}, {b.at, 1});
    //! starter
    // (void)a, (void)b;
    // throw std::logic_error("task 1b: + is not written yet");
    //! end
}
inline variable operator-(variable a, variable b) {
    //! solution
    return a.on->record(a.value() - b.value(), {a.at, 1}, {b.at, -1});
    //! starter
    // (void)a, (void)b;
    // throw std::logic_error("task 1b: - is not written yet");
    //! end
}
inline variable operator*(variable a, variable b) {
    //! solution
    return a.on->record(a.value() * b.value(), {a.at, b.value()}, {b.at, a.value()});
    //! starter
    // (void)a, (void)b;
    // throw std::logic_error("task 1b: * is not written yet");
    //! end
}
inline variable operator/(variable a, variable b) {
    //! solution
    const double y = a.value() / b.value();
    return a.on->record(y, {a.at, 1 / b.value()}, {b.at, -y / b.value()});
    //! starter
    // (void)a, (void)b;
    // throw std::logic_error("task 1b: / is not written yet");
    //! end
}
inline variable exp(variable a) {
    //! solution
    const double y = std::exp(a.value());
    return a.on->record(y, {a.at, y});
    //! starter
    // (void)a;
    // throw std::logic_error("task 1b: exp is not written yet");
    //! end
}
inline variable log(variable a) {
    //! solution
    return a.on->record(std::log(a.value()), {a.at, 1 / a.value()});
    //! starter
    // (void)a;
    // throw std::logic_error("task 1b: log is not written yet");
    //! end
}

/// Task 1b. aⁿ for n = …, −1, 0, 1, …; a⁰ = 1 for every a, so its derivative is 0, at a = 0 too.
inline variable pow(variable a, int n) {
    //! solution
    return a.on->record(std::pow(a.value(), n), {a.at, n == 0 ? 0 : n * std::pow(a.value(), n - 1)});
    //! starter
    // (void)a, (void)n;
    // throw std::logic_error("task 1b: pow is not written yet");
    //! end
}

/// Task 1b. The larger one. Where both are equal each has a half of the derivative, as in PyTorch and JAX: the halves
/// of max(a, a) add up to 1.
inline variable max(variable a, variable b) {
    //! solution
    const double of_a = a.value() > b.value() ? 1 : a.value() < b.value() ? 0 : 0.5;
    return a.on->record(std::max(a.value(), b.value()), {a.at, of_a}, {b.at, 1 - of_a});
    //! starter
    // (void)a, (void)b;
    // throw std::logic_error("task 1b: max is not written yet");
    //! end
}

/// Task 1b. max(a, 0), with derivative 0 at 0, as in task 3.
inline variable relu(variable a) {
    //! solution
    return a.on->record(std::max(a.value(), 0.0), {a.at, a.value() > 0 ? 1.0 : 0.0});
    //! starter
    // (void)a;
    // throw std::logic_error("task 1b: relu is not written yet");
    //! end
}

/// Task 1d. A linear layer with ReLU for one row x of inputs, out of the operations above:
/// y_o = relu(Σ_i W_oi x_i + b_o). w holds W row by row: W_oi is w[o · x.size() + i]. There are b.size() outputs.
/// Throws std::invalid_argument unless the sizes fit.
inline std::vector<variable> layer(std::span<const variable> x, std::span<const variable> w,
                                   std::span<const variable> b) {
    //! solution
    if (w.size() != x.size() * b.size()) throw std::invalid_argument("layer: the sizes do not fit");
    std::vector<variable> y;
    for (std::size_t o = 0; o < b.size(); ++o) {
        variable sum = b[o];
        for (std::size_t i = 0; i < x.size(); ++i) sum = sum + w[o * x.size() + i] * x[i];
        y.push_back(relu(sum));
    }
    return y;
    //! starter
    // (void)x, (void)w, (void)b;
    // throw std::logic_error("task 1d: layer is not written yet");
    //! end
}

}  // namespace student
