#pragma once
// Shampoo, SOAP and Muon on any device against plain loops in double; their states, and what a step asks of the host.
// On another device than the host, included after its products and decompositions.

#include "law.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/device/cpu/linalg.hpp>
#include <cairn/optim/precondition/muon.hpp>
#include <cairn/optim/precondition/shampoo.hpp>
#include <cairn/optim/precondition/soap.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace cairn::matrix_preconditioner_laws {

/// Copies numbers of the host to a tensor of D.
template <class T, Device D>
void put(const tensor<T>& from, tensor<T, D>& to) {
    if constexpr (std::same_as<D, cpu>)
        std::copy_n(from.data(), from.size(), to.data());
    else
        D::copy_to_device(to.data(), from.data(), from.bytes());
}
template <class T, Device D>
std::vector<T> numbers(const tensor<T, D>& t) {
    const tensor<T> here = t.on_host();
    return {here.data(), here.data() + here.size()};
}

template <Device D, class T = double>
struct matrices {  // a matrix, a 4-dimensional kernel and a vector
    parameter<T, D> wide, kernel, bias;
    std::unique_ptr<arena<T, D>> memory;

    matrices() {
        wide.shape = {3, 5};
        kernel.shape = {6, 2, 1, 2};
        bias.shape = {4};
        memory = std::make_unique<arena<T, D>>(
            parameter_list<T, D>{{"wide", &wide}, {"kernel", &kernel}, {"bias", &bias}}, 1);
    }
    void draw(std::uint32_t step) {
        for (auto* p : {&wide, &kernel, &bias}) {
            tensor<T> g(p->shape);
            for (index_t i = 0; i < g.size(); ++i)
                g[i] =
                    static_cast<T>(random_stream{9, static_cast<std::uint32_t>(p->id), step}.normal(std::uint64_t(i)));
            put(g, p->grad);
        }
    }
};

using matrix = std::vector<std::vector<double>>;

inline matrix matrix_of(const tensor<double>& t, index_t rows) {
    const index_t columns = t.size() / rows;
    matrix m(static_cast<std::size_t>(rows), std::vector<double>(static_cast<std::size_t>(columns)));
    for (index_t r = 0; r < rows; ++r)
        for (index_t c = 0; c < columns; ++c) m[std::size_t(r)][std::size_t(c)] = t[r * columns + c];
    return m;
}
inline matrix product(const matrix& a, const matrix& b) {
    matrix c(a.size(), std::vector<double>(b[0].size()));
    for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t k = 0; k < b.size(); ++k)
            for (std::size_t j = 0; j < b[0].size(); ++j) c[i][j] += a[i][k] * b[k][j];
    return c;
}
inline matrix transposed(const matrix& a) {
    matrix t(a[0].size(), std::vector<double>(a.size()));
    for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t j = 0; j < a[0].size(); ++j) t[j][i] = a[i][j];
    return t;
}
inline matrix combined(double x, const matrix& a, double y, const matrix& b) {
    matrix c = a;
    for (std::size_t i = 0; i < a.size(); ++i)
        for (std::size_t j = 0; j < a[0].size(); ++j) c[i][j] = x * a[i][j] + y * b[i][j];
    return c;
}
inline double length(const matrix& a) {
    double sum = 0;
    for (const auto& row : a)
        for (const double x : row) sum += x * x;
    return std::sqrt(sum);
}
inline double off(const matrix& a, const matrix& b) { return length(combined(1, a, -1, b)) / (length(b) + 1e-300); }
inline matrix zeros(std::size_t n) { return matrix(n, std::vector<double>(n)); }

/// Eigenvalues and vectors (columns) of a symmetric matrix by Jacobi's rotations.
inline std::pair<std::vector<double>, matrix> jacobi(matrix a) {
    const std::size_t n = a.size();
    matrix v = zeros(n);
    for (std::size_t i = 0; i < n; ++i) v[i][i] = 1;
    for (int sweep = 0; sweep < 60; ++sweep)
        for (std::size_t p = 0; p < n; ++p)
            for (std::size_t q = p + 1; q < n; ++q) {
                if (std::abs(a[p][q]) < 1e-300) continue;
                const double angle = 0.5 * std::atan2(2 * a[p][q], a[q][q] - a[p][p]);
                const double c = std::cos(angle), s = std::sin(angle);
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = a[k][p], y = a[k][q];
                    a[k][p] = c * x - s * y, a[k][q] = s * x + c * y;
                }
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = a[p][k], y = a[q][k];
                    a[p][k] = c * x - s * y, a[q][k] = s * x + c * y;
                }
                for (std::size_t k = 0; k < n; ++k) {
                    const double x = v[k][p], y = v[k][q];
                    v[k][p] = c * x - s * y, v[k][q] = s * x + c * y;
                }
            }
    std::vector<double> values;
    for (std::size_t i = 0; i < n; ++i) values.push_back(a[i][i]);
    return {values, v};
}

/// Of A + epsilon · its largest eigenvalue.
inline matrix inverse_fourth_root(const matrix& a, double epsilon) {
    const auto [values, v] = jacobi(a);
    const double floor = epsilon * std::ranges::max(values);
    matrix scaled = v;
    for (auto& row : scaled)
        for (std::size_t c = 0; c < row.size(); ++c) row[c] *= std::pow(values[c] + floor, -0.25);
    return product(scaled, transposed(v));
}

/// Shampoo: inverse fourth roots of both sides, as long as the gradient or of root mean square 1.
template <class D>
void roots() {
    for (const bool unit : {false, true}) {
        matrices<D> m;
        const double epsilon = unit ? 0 : 0.05;
        shampoo<double, D> s(*m.memory, {.decay = 0.9, .epsilon = epsilon, .refresh_every = 1, .unit = unit});
        CHECK(m.kernel.unit_gradient == unit);
        CHECK_FALSE(m.bias.unit_gradient);
        matrix l = zeros(6), r = zeros(4);
        for (std::uint32_t step = 1; step <= 8; ++step) {
            m.draw(step);
            const matrix g = matrix_of(m.kernel.grad.on_host(), 6);
            const std::vector<double> bias = numbers(m.bias.grad);
            s.precondition(1, 0.1);
            l = combined(0.9, l, 1, product(g, transposed(g)));
            r = combined(0.9, r, 1, product(transposed(g), g));
            if (step >= 2) {  // six rows of four columns: L has full rank from the second step on
                const matrix v = product(product(inverse_fourth_root(l, epsilon), g), inverse_fourth_root(r, epsilon));
                const double scale = (unit ? std::sqrt(24.0) : length(g)) / length(v);
                CHECK(off(matrix_of(m.kernel.grad.on_host(), 6), combined(scale, v, 0, v)) < 1e-8);
            }
            CHECK(bias == numbers(m.bias.grad));
        }
    }
}

/// Shampoo: what gradients hardly have, noise, does not take a direction's length.
template <class D>
void weak_directions() {
    parameter<double, D> p;
    p.shape = {2, 2};
    arena<double, D> memory(parameter_list<double, D>{{"p", &p}}, 1);
    const auto weak_over_strong = [&](shampoo_config c) {
        shampoo<double, D> s(memory, c);
        tensor<double> g = tensor<double>::zeros(p.shape);
        g[0] = 1, g[3] = 1e-3;
        put(g, p.grad);
        s.precondition(1, 0.1);
        const std::vector<double> d = numbers(p.grad);
        return d[3] / d[0];
    };
    CHECK(weak_over_strong({.epsilon = 0}) == Approx(1));
    CHECK(weak_over_strong({}) < 0.02);
}

/// Shampoo: blocks are matrices of their own.
template <class D>
void blocks() {
    matrices<D> m, cut;
    shampoo<double, D> blocked(*m.memory, {.block = 2, .refresh_every = 1});
    for (std::uint32_t step = 1; step <= 3; ++step) {
        m.draw(step);
        blocked.precondition(1, 0.1);
    }
    // Block (2 … 4, 2 … 4) of the kernel's 6 × 4, on its own.
    parameter<double, D> part;
    part.shape = {2, 2};
    arena<double, D> memory(parameter_list<double, D>{{"part", &part}}, 1);
    shampoo<double, D> alone(memory, {.refresh_every = 1});
    for (std::uint32_t step = 1; step <= 3; ++step) {
        cut.draw(step);
        const tensor<double> all = cut.kernel.grad.on_host();
        tensor<double> g({2, 2});
        for (index_t r = 0; r < 2; ++r)
            for (index_t c = 0; c < 2; ++c) g[r * 2 + c] = all[(r + 2) * 4 + c + 2];
        put(g, part.grad);
        alone.precondition(1, 0.1);
    }
    const std::vector<double> whole = numbers(m.kernel.grad), one = numbers(part.grad);
    for (std::size_t r = 0; r < 2; ++r)
        for (std::size_t c = 0; c < 2; ++c) CHECK(whole[(r + 2) * 4 + c + 2] == Approx(one[r * 2 + c]).epsilon(1e-12));
}

/// Soap: adam in the eigenbasis.
template <class D>
void adam_in_the_eigenbasis() {
    matrices<D> m;
    const double beta = 0.95, epsilon = 1e-8;
    soap<double, D> s(*m.memory, {.refresh_every = 100});  // one basis, that of the first gradient
    m.draw(1);
    const matrix first = matrix_of(m.kernel.grad.on_host(), 6);
    s.precondition(1, 0.1);
    for (const double d : numbers(m.kernel.grad)) CHECK(d == 0);
    const matrix ql = jacobi(product(first, transposed(first))).second,
                 qr = jacobi(product(transposed(first), first)).second;
    matrix moment(6, std::vector<double>(4)), square = moment;
    std::vector<double> bias_m(4), bias_v(4);
    for (int t = 1; t <= 5; ++t) {
        m.draw(static_cast<std::uint32_t>(t + 1));
        const matrix g = matrix_of(m.kernel.grad.on_host(), 6);
        const std::vector<double> bias = numbers(m.bias.grad);
        s.precondition(1, 0.1);
        const double scale = std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(beta, t));
        moment = combined(beta, moment, 1 - beta, g);
        matrix turned = product(product(transposed(ql), g), qr);
        for (auto& row : turned)
            for (double& x : row) x *= x;
        square = combined(beta, square, 1 - beta, turned);
        matrix step = product(product(transposed(ql), moment), qr);
        for (std::size_t i = 0; i < 6; ++i)
            for (std::size_t j = 0; j < 4; ++j) step[i][j] *= scale / (std::sqrt(square[i][j]) + epsilon);
        // The basis of six rows has a plane that the first gradient leaves open: there any rotation is an eigenbasis,
        // and Adam depends on which. Compare what is in the span of the first gradient's four rows: the components
        // along q_R of all, and along the four leading q_L.
        const matrix got = product(transposed(ql), product(matrix_of(m.kernel.grad.on_host(), 6), qr));
        const auto values = jacobi(product(first, transposed(first))).first;
        for (std::size_t i = 0; i < 6; ++i)
            for (std::size_t j = 0; j < 4; ++j)
                if (values[i] > 1e-9) CHECK(got[i][j] == Approx(step[i][j]).epsilon(1e-7).margin(1e-9));
        const std::vector<double> bias_direction = numbers(m.bias.grad);
        for (std::size_t i = 0; i < 4; ++i) {  // vectors: Adam
            bias_m[i] = beta * bias_m[i] + (1 - beta) * bias[i];
            bias_v[i] = beta * bias_v[i] + (1 - beta) * bias[i] * bias[i];
            CHECK(bias_direction[i] == Approx(scale * bias_m[i] / (std::sqrt(bias_v[i]) + epsilon)));
        }
    }
}

/// Soap: the basis follows the gradients.
template <class D>
void bases_follow() {
    // Gradients G = u vᵀ + noise of one direction: after refreshes the leading columns are u and v.
    matrices<D> m;
    soap<double, D> s(*m.memory, {.beta2 = 0.8, .refresh_every = 2});
    std::vector<double> u{0.5, -0.5, 0.5, 0.1, 0.4, -0.3}, v{0.2, 0.8, -0.4, 0.4};
    for (std::uint32_t step = 1; step <= 40; ++step) {
        m.draw(step);
        tensor<double> g = m.kernel.grad.on_host();
        for (index_t i = 0; i < 6; ++i)
            for (index_t j = 0; j < 4; ++j) g[i * 4 + j] = 0.01 * g[i * 4 + j] + u[std::size_t(i)] * v[std::size_t(j)];
        put(g, m.kernel.grad);
        s.precondition(1, 0.1);
    }
    for (const auto& [name, there] : s.tensors()) {
        if (name != "kernel/l_basis" && name != "kernel/r_basis") continue;
        const tensor<double> t = there.on_host();
        const index_t n = t.extent(0);
        const std::vector<double>& leading = n == 6 ? u : v;
        double along = 0, norm2 = 0;
        for (index_t i = 0; i < n; ++i) {
            along += t[i * n] * leading[std::size_t(i)];
            norm2 += leading[std::size_t(i)] * leading[std::size_t(i)];
            for (index_t j = 0; j < n; ++j) {
                double dots = 0;
                for (index_t k = 0; k < n; ++k) dots += t[k * n + i] * t[k * n + j];
                CHECK(dots == Approx(i == j ? 1 : 0).margin(1e-10));
            }
        }
        CHECK(std::abs(along) / std::sqrt(norm2) > 0.999);
    }
}

/// Columns made orthonormal one after the other.
inline matrix gram_schmidt(matrix a) {
    const std::size_t n = a.size();
    for (std::size_t c = 0; c < n; ++c)
        for (std::size_t before = 0; before <= c; ++before) {
            double along = 0;
            for (std::size_t r = 0; r < n; ++r) along += a[r][c] * a[r][before];
            for (std::size_t r = 0; r < n; ++r)
                a[r][c] = before < c ? a[r][c] - along * a[r][before] : a[r][c] / std::sqrt(along);
        }
    return a;
}
/// The columns of a by these values, largest first.
inline matrix sorted_columns(const matrix& a, const std::vector<double>& values) {
    std::vector<std::size_t> order(values.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::ranges::sort(order, [&](std::size_t i, std::size_t k) { return values[i] > values[k]; });
    matrix sorted = a;
    for (std::size_t r = 0; r < a.size(); ++r)
        for (std::size_t c = 0; c < order.size(); ++c) sorted[r][c] = a[r][order[c]];
    return sorted;
}

/// Soap: bases are refreshed after the step, and what Adam keeps goes with their columns.
template <class D>
void refreshed_bases() {
    parameter<double, D> square;
    square.shape = {4, 4};
    arena<double, D> memory(parameter_list<double, D>{{"square", &square}}, 1);
    const double beta = 0.6, epsilon = 1e-8;
    soap<double, D> s(memory, {.beta1 = beta, .beta2 = beta, .epsilon = epsilon, .refresh_every = 2});
    matrix l, r, ql, qr, moment = zeros(4), second = zeros(4);
    bool moved = false;
    for (std::uint32_t t = 0; t <= 8; ++t) {
        tensor<double> drawn({4, 4});
        for (index_t i = 0; i < 16; ++i) drawn[i] = random_stream{11, 3, t}.normal(std::uint64_t(i));
        put(drawn, square.grad);
        const matrix g = matrix_of(drawn, 4);
        s.precondition(1, 0.1);
        const matrix ggt = product(g, transposed(g)), gtg = product(transposed(g), g);
        if (t == 0) {
            l = ggt, r = gtg;
            const auto [lv, lq] = jacobi(l);
            const auto [rv, rq] = jacobi(r);
            ql = sorted_columns(lq, lv), qr = sorted_columns(rq, rv);
            continue;
        }
        matrix turned = product(product(transposed(ql), g), qr);
        for (auto& row : turned)
            for (double& x : row) x *= x;
        moment = combined(beta, moment, 1 - beta, g);
        second = combined(beta, second, 1 - beta, turned);
        matrix step = product(product(transposed(ql), moment), qr);
        const double scale = std::sqrt(1 - std::pow(beta, t)) / (1 - std::pow(beta, t));
        for (std::size_t i = 0; i < 4; ++i)
            for (std::size_t j = 0; j < 4; ++j) step[i][j] *= scale / (std::sqrt(second[i][j]) + epsilon);
        CHECK(off(matrix_of(square.grad.on_host(), 4), product(product(ql, step), transposed(qr))) < 1e-6);
        l = combined(beta, l, 1 - beta, ggt), r = combined(beta, r, 1 - beta, gtg);
        if (t % 2 != 0) continue;
        const auto refresh = [&](const matrix& mean, matrix& q, bool rows) {
            const matrix next = product(mean, q), turned_mean = product(transposed(q), next);
            std::vector<double> values;
            for (std::size_t i = 0; i < 4; ++i) values.push_back(turned_mean[i][i]);
            moved = moved || !std::ranges::is_sorted(values, std::greater<>{});
            second = rows ? transposed(sorted_columns(transposed(second), values)) : sorted_columns(second, values);
            q = gram_schmidt(sorted_columns(next, values));
        };
        refresh(l, ql, true);
        refresh(r, qr, false);
    }
    CHECK(moved);  // else nothing was reordered
}

/// Muon: momentum, then five steps of Newton and Schulz.
template <class D>
void orthogonal_steps() {
    matrices<D> m;
    muon<double, D> o(*m.memory, {.momentum = 0.9, .nesterov = true});
    matrix moment(6, std::vector<double>(4));
    for (std::uint32_t step = 1; step <= 3; ++step) {
        m.draw(step);
        const matrix g = matrix_of(m.kernel.grad.on_host(), 6);
        o.precondition(1, 0.1);
        moment = combined(0.9, moment, 1, g);
        const matrix b = combined(1, g, 0.9, moment);
        matrix x = combined(1 / (length(b) + 1e-7), b, 0, b);
        for (int i = 0; i < 5; ++i) {
            const matrix a = product(x, transposed(x));
            x = combined(3.4445, x, 1, product(combined(-4.7750, a, 2.0315, product(a, a)), x));
        }
        const matrix got = matrix_of(m.kernel.grad.on_host(), 6);
        CHECK(off(got, combined(std::sqrt(6.0 / 4), x, 0, x)) < 1e-10);
        for (const double value : jacobi(product(transposed(x), x)).first) {  // squared singular values
            CHECK(value > 0.3);
            CHECK(value < 1.6);
        }
    }
}

/// Muon: vectors and what is skipped get adam's direction.
template <class D>
void adam_directions() {
    matrices<D> m, all;
    muon<double, D> o(*m.memory, {.adam_lr_ratio = 0.5, .skip = {"wide"}}), plain(*all.memory, {});
    for (std::uint32_t step = 1; step <= 3; ++step) {
        m.draw(step), all.draw(step);
        o.precondition(1, 0.1), plain.precondition(1, 0.1);
    }
    CHECK(numbers(m.kernel.grad) == numbers(all.kernel.grad));
    std::vector<double> first(15), second(15);
    matrices<D> again;
    for (int t = 1; t <= 3; ++t) {
        again.draw(static_cast<std::uint32_t>(t));
        const std::vector<double> drawn = numbers(again.wide.grad);
        for (std::size_t i = 0; i < 15; ++i) {
            const double g = drawn[i];
            first[i] = 0.9 * first[i] + 0.1 * g;
            second[i] = 0.95 * second[i] + 0.05 * g * g;
        }
    }
    const std::vector<double> direction = numbers(m.wide.grad);
    for (std::size_t i = 0; i < 15; ++i)
        CHECK(direction[i] == Approx(0.5 * first[i] / (1 - std::pow(0.9, 3)) /
                                     (std::sqrt(second[i] / (1 - std::pow(0.95, 3))) + 1e-8)));
}

/// Matrix preconditioners: zero gradients, empty settings.
template <class D>
void zeros_and_settings() {
    matrices<D> m;
    shampoo<double, D> a(*m.memory, {});
    soap<double, D> b(*m.memory, {});
    muon<double, D> c(*m.memory, {});
    for (preconditioner<double, D>* p : std::initializer_list<preconditioner<double, D>*>{&a, &b, &c})
        for (int step = 0; step < 3; ++step) {
            m.memory->zero_grad();
            p->precondition(1, 0.1);
            for (const double g : numbers(m.memory->grads())) CHECK(g == 0);
        }
    CHECK_THROWS_WITH((shampoo<double, D>(*m.memory, {.decay = 0})), Catch::Contains("decay 0"));
    CHECK_THROWS_WITH((soap<double, D>(*m.memory, {.beta2 = 1})), Catch::Contains("betas"));
    CHECK_THROWS_WITH((muon<double, D>(*m.memory, {.momentum = 1})), Catch::Contains("momentum 1"));
}

/// Each of them, with settings that make steps with and without decompositions.
template <class D, class T, class F>
void with_each(F&& f) {
    using made = std::unique_ptr<preconditioner<T, D>>;
    f("shampoo", [](arena<T, D>& w) -> made {
        return std::make_unique<shampoo<T, D>>(w, shampoo_config{.block = 4, .refresh_every = 3});
    });
    f("soap", [](arena<T, D>& w) -> made { return std::make_unique<soap<T, D>>(w, soap_config{.refresh_every = 3}); });
    f("muon", [](arena<T, D>& w) -> made {
        return std::make_unique<muon<T, D>>(w, muon_config{.nesterov = false, .skip = {"wide"}});
    });
}

/// The tensors and counters of one, in another: on whichever devices the two are.
template <class T, Device From, Device To>
void move_state(preconditioner<T, From>& from, preconditioner<T, To>& to) {
    auto old = from.tensors();
    auto fresh = to.tensors();
    REQUIRE(old.size() == fresh.size());
    for (std::size_t i = 0; i < old.size(); ++i) {
        REQUIRE(old[i].name == fresh[i].name);
        put(old[i].t.on_host(), fresh[i].t);
    }
    const auto counted = from.counters(), counters = to.counters();
    REQUIRE(counted.size() == counters.size());
    for (std::size_t i = 0; i < counted.size(); ++i) {
        REQUIRE(counted[i].first == counters[i].first);
        *counters[i].second = *counted[i].second;
    }
}

/// A fresh one with the state of another goes on with the same bits; with that of the host's, as the host does.
template <class D>
void resumed() {
    with_each<D, float>([](const char* name, auto make) {
        CAPTURE(std::string(name));
        matrices<D, float> first, second;
        const auto a = make(*first.memory), b = make(*second.memory);
        for (std::uint32_t step = 1; step <= 4; ++step) {
            first.draw(step);
            a->precondition(1, 0.1);
        }
        move_state(*a, *b);
        for (std::uint32_t step = 5; step <= 8; ++step) {
            first.draw(step), second.draw(step);
            a->precondition(1, 0.1), b->precondition(1, 0.1);
            CHECK(numbers(first.memory->grads()) == numbers(second.memory->grads()));
        }
    });
    with_each<cpu, double>([](const char* name, auto make) {
        CAPTURE(std::string(name));
        matrices<cpu> here;
        const auto a = make(*here.memory);
        for (std::uint32_t step = 1; step <= 4; ++step) {
            here.draw(step);
            a->precondition(1, 0.1);
        }
        with_each<D, double>([&](const char* other, auto make_there) {
            if (std::string(name) != other) return;
            matrices<D> there;
            const auto b = make_there(*there.memory);
            move_state(*a, *b);
            for (std::uint32_t step = 5; step <= 6; ++step) {  // up to a refresh: a basis may turn from there on
                here.draw(step), there.draw(step);
                a->precondition(1, 0.1), b->precondition(1, 0.1);
                const std::vector<double> x = numbers(here.memory->grads()), y = numbers(there.memory->grads());
                for (std::size_t i = 0; i < x.size(); ++i) CHECK(y[i] == Approx(x[i]).epsilon(1e-7).margin(1e-9));
            }
        });
    });
}

template <Device D>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"shampoo: inverse fourth roots of both sides, as long as asked", roots<D>},
                                       {"shampoo: directions without gradients stay short", weak_directions<D>},
                                       {"shampoo: blocks are matrices of their own", blocks<D>},
                                       {"soap: adam in the eigenbasis", adam_in_the_eigenbasis<D>},
                                       {"soap: the basis follows the gradients", bases_follow<D>},
                                       {"soap: what Adam keeps goes with the columns", refreshed_bases<D>},
                                       {"muon: momentum, then five steps of Newton and Schulz", orthogonal_steps<D>},
                                       {"muon: vectors and what is skipped get adam's direction", adam_directions<D>},
                                       {"zero gradients, empty settings", zeros_and_settings<D>},
                                       {"resumed", resumed<D>}};
    return laws;
}

}  // namespace cairn::matrix_preconditioner_laws
