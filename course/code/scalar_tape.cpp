// Code of course/lectures/09-autodiff.md: reverse mode on a tape of scalars, and convolution with its two adjoints.
// Checks and prints what the page says.

#include <cairn/core/random.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/im2col.hpp>

#include <cmath>
#include <cstdio>
#include <vector>

using cairn::conv_geometry;
using cairn::index_t;
using cairn::random_stream;
using cairn::require;

// --8<-- [start:tape]
/// The operations, in order. A node has at most two operands and the derivatives by them.
struct tape {
    struct node {
        int operand[2];
        double derivative[2];
    };
    std::vector<node> nodes;

    int add(node n) { return nodes.push_back(n), int(nodes.size()) - 1; }

    /// ∂ of node `of` by all nodes: one sweep from the last to the first.
    std::vector<double> gradient(int of) const {
        std::vector<double> bar(nodes.size(), 0.0);
        bar[std::size_t(of)] = 1;
        for (int i = of; i >= 0; --i)
            for (int k = 0; k < 2; ++k)
                if (const node& n = nodes[std::size_t(i)]; n.operand[k] >= 0)
                    bar[std::size_t(n.operand[k])] += n.derivative[k] * bar[std::size_t(i)];
        return bar;
    }
};

/// A number that writes down what is done with it.
struct number {
    tape* t;
    double value;
    int at;

    number(tape& where, double v) : t(&where), value(v), at(where.add({{-1, -1}, {0, 0}})) {}
    number(tape* where, double v, tape::node n) : t(where), value(v), at(where->add(n)) {}
};
number operator+(number a, number b) { return {a.t, a.value + b.value, {{a.at, b.at}, {1, 1}}}; }
number operator*(number a, number b) { return {a.t, a.value * b.value, {{a.at, b.at}, {b.value, a.value}}}; }
number tanh(number a) {
    const double y = std::tanh(a.value);
    return {a.t, y, {{a.at, -1}, {1 - y * y, 0}}};
}
// --8<-- [end:tape]

void reverse() {
    // --8<-- [start:example]
    tape t;
    number w(t, 0.5), x(t, 2.0), b(t, -0.3);
    number h = tanh(w * x + b);
    number loss = h * h + w;  // w is used twice
    const std::vector<double> g = t.gradient(loss.at);
    std::printf("loss %.6f, by w %.6f, by x %.6f, by b %.6f; %zu nodes\n", loss.value, g[std::size_t(w.at)],
                g[std::size_t(x.at)], g[std::size_t(b.at)], t.nodes.size());
    // --8<-- [end:example]
    const auto f = [](double w, double x, double b) { return std::pow(std::tanh(w * x + b), 2) + w; };
    const double e = 1e-6;
    require(std::abs((f(0.5 + e, 2, -0.3) - f(0.5 - e, 2, -0.3)) / (2 * e) - g[std::size_t(w.at)]) < 1e-9, "by w");
    require(std::abs((f(0.5, 2 + e, -0.3) - f(0.5, 2 - e, -0.3)) / (2 * e) - g[std::size_t(x.at)]) < 1e-9, "by x");
}

// --8<-- [start:convolution]
/// Calls term(x's index, w's index, y's index) for each product of a convolution along one axis: n inputs, K taps.
template <class Term>
void convolution(int n, int K, int stride, int pad, Term term) {
    const int out = (n + 2 * pad - K) / stride + 1;
    for (int o = 0; o < out; ++o)
        for (int t = 0; t < K; ++t)
            if (const int i = o * stride + t - pad; i >= 0 && i < n) term(i, t, o);
}
// --8<-- [end:convolution]

void adjoints() {
    const int n = 11, K = 3, stride = 2, pad = 1, out = (n + 2 * pad - K) / stride + 1;
    const random_stream random{.seed = 3};
    std::vector<double> x(n), w(K), dy(out);
    for (int i = 0; i < n; ++i) x[std::size_t(i)] = random.normal(std::uint64_t(i));
    for (int i = 0; i < K; ++i) w[std::size_t(i)] = random.normal(std::uint64_t(100 + i));
    for (int i = 0; i < out; ++i) dy[std::size_t(i)] = random.normal(std::uint64_t(200 + i));
    // --8<-- [start:adjoints]
    std::vector<double> y(dy.size()), dx(x.size()), dw(w.size());
    convolution(n, K, stride, pad, [&](auto i, auto t, auto o) { y[o] += x[i] * w[t]; });
    convolution(n, K, stride, pad, [&](auto i, auto t, auto o) { dx[i] += dy[o] * w[t]; });
    convolution(n, K, stride, pad, [&](auto i, auto t, auto o) { dw[t] += dy[o] * x[i]; });

    const auto dot = [](const auto& a, const auto& b) {
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    };
    std::printf("<dy, y> %.12f, <dx, x> %.12f, <dw, w> %.12f\n", dot(dy, y), dot(dx, x), dot(dw, w));
    // --8<-- [end:adjoints]
    require(std::abs(dot(dy, y) - dot(dx, x)) < 1e-12 && std::abs(dot(dy, y) - dot(dw, w)) < 1e-12, "adjoints");
}

void patches() {
    // --8<-- [start:im2col]
    const conv_geometry g =
        conv_geometry{
            .n = 2, .in = {1, 5, 5}, .c_in = 3, .c_out = 4, .kernel = {1, 3, 3}, .stride = {1, 2, 2}, .pad = {0, 1, 1}}
            .with_output();
    const index_t rows = g.n * g.out_points(), columns = g.kernel_points() * g.c_in;
    std::vector<double> x(std::size_t(g.x_elements()), 1.0), p(std::size_t(rows * columns));
    cairn::im2col::gather(g, x.data(), 0, rows, p.data());  // P (rows, columns); y = P wᵀ, w (c_out, columns)
    std::printf("x has %td numbers, P %td x %td, %.2f times as many\n", g.x_elements(), rows, columns,
                double(p.size()) / double(x.size()));
    // --8<-- [end:im2col]
    require(rows == 18 && columns == 27, "patches");
    // scatter_add is the adjoint of gather: <q, P(x)> = <Pᵀ(q), x>.
    const random_stream random{.seed = 4};
    std::vector<double> q(p.size()), back(x.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = random.normal(i);
    for (std::size_t i = 0; i < q.size(); ++i) q[i] = random.normal(1000 + i);
    cairn::im2col::gather(g, x.data(), 0, rows, p.data());
    cairn::im2col::scatter_add(g, q.data(), 0, rows, back.data());
    double left = 0, right = 0;
    for (std::size_t i = 0; i < q.size(); ++i) left += q[i] * p[i];
    for (std::size_t i = 0; i < x.size(); ++i) right += back[i] * x[i];
    require(std::abs(left - right) < 1e-11, "col2im is no adjoint: ", left, " ", right);
}

int main() {
    reverse();
    adjoints();
    patches();
}
