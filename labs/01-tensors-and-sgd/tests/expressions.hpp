#pragma once
// Expressions for the tests of the tape: drawn from the seed, written as formulas, and their derivatives by forward
// mode, which no submission has.

#include "arrays.hpp"

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lab {

/// Name, place of the first operand, place of the second (of "pow": the exponent; "exp", "log", "relu": nothing).
using operation = std::tuple<std::string, std::size_t, int>;

inline bool has_two(const std::string& name) {
    return name == "+" || name == "-" || name == "*" || name == "/" || name == "max";
}

/// A number, and by how much computing it in double may miss it.
struct rounded {
    double value = 0, error = 0;
};

/// Value of one operation, and its derivatives by both operands.
struct local {
    rounded value, by_a, by_b;
};
inline local applied(const operation& o, rounded a, rounded b) {
    const auto& name = std::get<0>(o);
    const double u = a.value, v = b.value, n = std::get<2>(o);
    // f(u, v), where |∂f/∂u| = fu and |∂f/∂v| = fv: what the operands' errors make of it, and four roundings.
    const auto f = [&](double value, double fu, double fv) {
        return rounded{value, std::abs(fu) * a.error + std::abs(fv) * b.error + 4 * epsilon<double> * std::abs(value)};
    };
    const auto exactly = [](double value) { return rounded{value, 0}; };
    if (name == "+") return {f(u + v, 1, 1), exactly(1), exactly(1)};
    if (name == "-") return {f(u - v, 1, 1), exactly(1), exactly(-1)};
    if (name == "*") return {f(u * v, v, u), f(v, 0, 1), f(u, 1, 0)};
    if (name == "/")
        return {f(u / v, 1 / v, u / v / v), f(1 / v, 0, 1 / v / v), f(-u / v / v, 1 / v / v, 2 * u / v / v / v)};
    if (name == "exp") return {f(std::exp(u), std::exp(u), 0), f(std::exp(u), std::exp(u), 0), {}};
    if (name == "log") return {f(std::log(u), 1 / u, 0), f(1 / u, 1 / u / u, 0), {}};
    if (name == "relu") return {f(std::max(u, 0.0), u > 0, 0), exactly(u > 0), {}};
    if (name == "max") {
        const double of_a = u == v ? 0.5 : u > v;
        return {f(std::max(u, v), of_a, 1 - of_a), exactly(of_a), exactly(1 - of_a)};
    }
    if (n == 0) return {exactly(1), exactly(0), {}};
    const double slope = n * std::pow(u, n - 1), bend = n == 1 ? 0 : n * (n - 1) * std::pow(u, n - 2);
    return {f(std::pow(u, n), slope, 0), f(slope, bend, 0), {}};
}

/// Inputs and operations in order; the places of inputs come first, the last place is the result.
struct expression {
    std::vector<double> inputs;
    std::vector<operation> operations;

    std::size_t size() const { return inputs.size() + operations.size(); }

    std::vector<rounded> values() const {
        std::vector<rounded> all;
        for (const double x : inputs) all.push_back({x, 0});
        for (const operation& o : operations) all.push_back(applied(o, all[first(o)], all[second(o)]).value);
        return all;
    }

    /// The derivatives of the value at place `of` by the values at all places, by one forward sweep for each of them.
    /// Their error counts each path from one to the other by itself, for reverse mode adds up in another order.
    std::vector<rounded> derivatives(std::size_t of) const {
        const std::vector<rounded> v = values();
        std::vector<rounded> all(size());
        for (std::size_t by = 0; by <= of; ++by) {
            std::vector<rounded> d(of + 1);     // of each place, by `by`
            std::vector<double> paths(of + 1);  // sums of the magnitudes of all products along paths
            d[by] = {1, 0}, paths[by] = 1;
            for (std::size_t i = std::max(by + 1, inputs.size()); i <= of; ++i) {
                const operation& o = operations[i - inputs.size()];
                const local l = applied(o, v[first(o)], v[second(o)]);
                for (const auto& [from, slope] : {std::pair(first(o), l.by_a), std::pair(second(o), l.by_b)}) {
                    const double magnitude = std::abs(slope.value);
                    d[i].value += slope.value * d[from].value;
                    d[i].error +=
                        magnitude * d[from].error + (slope.error + 4 * epsilon<double> * magnitude) * paths[from];
                    paths[i] += magnitude * paths[from];
                }
            }
            all[by] = d[of];
        }
        return all;
    }

    /// What stands at a place, as a formula of inputs; longer than `most` letters, as operations in order.
    std::string formula(std::size_t place, std::size_t most = 100) const {
        std::vector<std::string> text;
        for (std::size_t i = 0; i <= place; ++i) {
            text.push_back(written(i, text));
            if (text.back().size() > 4 * most) text.back() = std::string(4 * most, '?');  // grows without bound
        }
        if (text[place].size() <= most) return bare(text[place]);
        std::vector<std::string> names;
        std::string all;
        for (std::size_t i = 0; i <= place; ++i) {
            if (i >= inputs.size()) all += (all.empty() ? "" : ", ") + name(i) + " = " + bare(written(i, names));
            names.push_back(name(i));
        }
        return all;
    }
    std::string name(std::size_t place) const { return (place < inputs.size() ? "x" : "v") + std::to_string(place); }
    /// "x0 = 0.5, x1 = 2".
    std::string given() const {
        std::string all;
        for (std::size_t i = 0; i < inputs.size(); ++i) all += (i ? ", " : "") + name(i) + " = " + text(inputs[i]);
        return all;
    }

private:
    static std::size_t first(const operation& o) { return std::get<1>(o); }
    static std::size_t second(const operation& o) {
        return has_two(std::get<0>(o)) ? static_cast<std::size_t>(std::get<2>(o)) : first(o);
    }
    std::string written(std::size_t place, const std::vector<std::string>& operands) const {
        if (place < inputs.size()) return name(place);
        const operation& o = operations[place - inputs.size()];
        const auto& [what, a, b] = o;
        const std::string &left = operands[a], &right = operands[second(o)];
        if (what == "pow") return "pow(" + bare(left) + ", " + std::to_string(b) + ")";
        if (what == "max") return "max(" + bare(left) + ", " + bare(right) + ")";
        if (has_two(what)) return "(" + left + " " + what + " " + right + ")";
        return what + "(" + bare(left) + ")";
    }
    /// Without the brackets around all of it.
    static std::string bare(const std::string& formula) {
        return formula.front() == '(' ? formula.substr(1, formula.size() - 2) : formula;
    }
};

/// An expression of `count` operations over three inputs, in which values are used several times. Values stay between
/// 1/8 and 8 in magnitude, and operands of max apart, so that no derivative jumps near by.
inline expression drawn(std::size_t count, std::uint32_t stream) {
    const cairn::random_stream random{seed(), stream, 5};
    std::uint64_t next = 0;
    const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random.below(n, next++)); };
    const char* const all[]{"+", "-", "*", "/", "exp", "log", "max", "relu", "pow"};
    expression e;
    for (int i = 0; i < 3; ++i)
        e.inputs.push_back((below(2) ? 1 : -1) * (0.5 + 2 * static_cast<double>(random.uniform(next++))));
    std::vector<rounded> v = e.values();
    while (e.operations.size() < count) {
        const std::string name = all[below(std::size(all))];
        // The latest value is used more often than not: the expression hangs together.
        const std::size_t a = below(2) ? v.size() - 1 : below(v.size()), b = below(v.size());
        const operation o{name, a, name == "pow" ? static_cast<int>(below(6)) - 2 : static_cast<int>(b)};
        if (name == "log" && v[a].value < 0) continue;
        if (name == "max" && a != b && std::abs(v[a].value - v[b].value) < 0.125) continue;
        const rounded result = applied(o, v[a], has_two(name) ? v[b] : v[a]).value;
        if (!(std::abs(result.value) >= 0.125 && std::abs(result.value) <= 8)) continue;
        e.operations.push_back(o), v.push_back(result);
    }
    return e;
}

using values_and_gradients = std::pair<std::vector<double>, std::vector<double>>;

/// What the student's tape has at all places after backward passes from `passes`, where -1 stands for zero_gradients.
inline values_and_gradients on_tape(const expression& e, const std::vector<int>& passes) {
    doing(e.formula(e.size() - 1) + " with " + e.given());
    return call<values_and_gradients>("tape", e.inputs, e.operations, passes);
}

/// Empty, or which value or gradient of which part of the expression is wrong.
inline std::string fault_of_tape(const expression& e, const std::vector<int>& passes) {
    const auto [values, gradients] = on_tape(e, passes);
    if (values.size() != e.size() || gradients.size() != e.size()) return "the tape has not kept all values";
    std::vector<rounded> expected(e.size());
    std::string sum, where;  // of the results whose gradients add up, and what they are
    for (const int from : passes) {
        if (from < 0) {
            expected.assign(e.size(), {}), sum.clear(), where.clear();
            continue;
        }
        const auto place = static_cast<std::size_t>(from);
        const std::vector<rounded> d = e.derivatives(place);
        for (std::size_t i = 0; i <= place; ++i)
            expected[i].value += d[i].value, expected[i].error += d[i].error + epsilon<double> * std::abs(d[i].value);
        sum += (sum.empty() ? "" : " + ") + e.name(place);
        if (where.find(e.name(place) + " = ") == std::string::npos)
            where += "; " + e.name(place) + " = " + e.formula(place);
    }
    where += "; " + e.given();
    const std::vector<rounded> v = e.values();
    const auto wrong = [](double got, const rounded& of) { return !(std::abs(got - of.value) <= 2 * of.error); };
    for (std::size_t i = 0; i < e.size(); ++i)
        if (wrong(values[i], v[i]))
            return "the value of " + e.formula(i, 60) + " is " + text(values[i]) + ", expected " + text(v[i].value) +
                   where;
    for (std::size_t i = e.size(); i-- > 0;)  // as backward goes: the first one that is wrong
        if (wrong(gradients[i], expected[i]))
            return (sum.empty() ? "without a backward pass since zero_gradients, the gradient of "
                                : "d(" + sum + ")/d(") +
                   e.formula(i, 60) + (sum.empty() ? "" : ")") + " is " + text(gradients[i]) + ", expected " +
                   text(expected[i].value) + where;
    return {};
}

/// y, dx, dW and db of a layer with ReLU on the student's tape.
using tape_layer = std::tuple<array<double>, array<double>, array<double>, std::vector<double>>;

/// A layer y = relu(x Wᵀ + b), dy, and what is expected of it.
struct relu_layer {
    array<double> x, w, dy, inner;  // inner: dy where the ReLU is open, else 0
    std::vector<double> b;
    linear_expectation e{};

    relu_layer(std::size_t batch, std::size_t in, std::size_t out, std::uint32_t stream)
        : x(matrix<double>(batch, in, stream)),
          w(matrix<double>(out, in, stream + 1)),
          dy(matrix<double>(batch, out, stream + 2)),
          inner(dy),
          b(vec<double>(out, stream + 3)) {
        const linear_expectation before = linear(x, w, b, dy);
        for (std::size_t i = 0; i < inner.values.size(); ++i)
            if (before.y.value[i] <= 0) inner.values[i] = 0;
        e = linear(x, w, b, inner);
        for (double& y : e.y.value) y = std::max(y, 0.0);
    }

    tape_layer on_tape() const {
        doing("a layer of " + std::to_string(x.rows) + " rows, " + std::to_string(x.columns) + " inputs, " +
              std::to_string(w.rows) + " outputs");
        return call<tape_layer>("layer on a tape", x, w, b, dy);
    }
    std::string fault(const tape_layer& got) const {
        const auto& [y, d_x, d_w, d_b] = got;
        if (const std::string why = difference(y, e.y); !why.empty()) return "y: " + why;
        return difference(d_x, d_w, d_b, e);
    }
};

}  // namespace lab
