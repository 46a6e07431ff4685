#pragma once
// Shared by the tests of this lab: arrays drawn from the seed, comparisons, and the formulas once more by plain loops
// in double.

#include "judge.hpp"

#include <algorithm>
#include <numbers>
#include <numeric>
#include <span>
#include <string>
#include <vector>

namespace lab {

/// rows × columns elements, row by row.
template <class T>
struct array {
    std::size_t rows = 0, columns = 0;
    std::vector<T> values;

    array() = default;
    array(std::size_t r, std::size_t c) : rows(r), columns(c), values(r * c) {}
    T& operator()(std::size_t i, std::size_t j) { return values[i * columns + j]; }
    const T& operator()(std::size_t i, std::size_t j) const { return values[i * columns + j]; }
};

template <class T>
struct members<array<T>> {
    static auto of(auto& a) { return std::tie(a.rows, a.columns, a.values); }
};

/// A function of the submission in element type T: "softmax double".
template <class T>
std::string of_type(const std::string& name) {
    return name + (std::is_same_v<T, float> ? " float" : " double");
}

template <class T>
constexpr double epsilon = static_cast<double>(std::numeric_limits<T>::epsilon());

/// rows × columns numbers in (-scale, scale).
template <class T>
array<T> matrix(std::size_t rows, std::size_t columns, std::uint32_t stream, double scale = 1) {
    const auto all = numbers<double>(rows * columns, stream);
    array<T> m(rows, columns);
    for (std::size_t i = 0; i < all.size(); ++i) m.values[i] = static_cast<T>(scale * all[i]);
    return m;
}

template <class T>
std::vector<T> vec(std::size_t n, std::uint32_t stream) {
    const auto all = numbers<double>(n, stream);
    return {all.begin(), all.end()};
}

inline std::vector<int> labels(std::size_t n, int classes, std::uint32_t stream) {
    const cairn::random_stream random{seed(), stream, 2};
    std::vector<int> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = static_cast<int>(random.below(static_cast<std::uint64_t>(classes), i));
    return all;
}

/// Expected elements and what each may be off by, both in double.
struct expectation {
    std::size_t rows, columns;
    std::vector<double> value = std::vector<double>(rows * columns), bound = std::vector<double>(rows * columns);
};

/// Empty, or what is wrong: the shape, then NaN and infinity, then an element that is too far off.
template <class T>
std::string difference(const array<T>& got, const expectation& e) {
    if (got.rows != e.rows || got.columns != e.columns)
        return "the shape is (" + std::to_string(got.rows) + ", " + std::to_string(got.columns) + "), expected (" +
               std::to_string(e.rows) + ", " + std::to_string(e.columns) + ")";
    std::string why = difference(std::span<const T>(got.values), e.value, e.bound);
    return why.empty() || e.columns == 0 ? why
                                         : why + " (elements row by row, " + std::to_string(e.columns) + " a row)";
}
template <class T>
std::string difference(const std::vector<T>& got, const expectation& e) {
    return difference(std::span<const T>(got), e.value, e.bound);
}

/// Empty, or what is wrong with the student's standardised columns, whose means lie about `far` from zero.
inline std::string fault_of_standardised(std::size_t rows, std::size_t columns, std::uint32_t stream, double far) {
    array<double> x = matrix<double>(rows, columns, stream);
    for (double& v : x.values) v += far;
    const double small = 1e-3, count = static_cast<double>(rows);
    expectation e{rows, columns};
    for (std::size_t j = 0; j < columns; ++j) {
        long double sum = 0, squares = 0, largest = 0;
        for (std::size_t i = 0; i < rows; ++i) {
            const long double v = x(i, j);
            sum += v;
            largest = std::max(largest, std::abs(v));
        }
        const long double mean = sum / count;
        for (std::size_t i = 0; i < rows; ++i) squares += (x(i, j) - mean) * (x(i, j) - mean);
        const double deviation = static_cast<double>(std::sqrt(squares / count + small));
        // The mean is off by count ε largest at most: so is every difference from it, and the deviation in proportion.
        const double off = rounding_bound<double>(rows + 2, static_cast<double>(largest)) / deviation;
        for (std::size_t i = 0; i < rows; ++i) {
            const double y = static_cast<double>(x(i, j) - mean) / deviation;
            e.value[i * columns + j] = y;
            e.bound[i * columns + j] = off * (1 + std::abs(y)) + 2 * epsilon<double> * (count + 8) * std::abs(y);
        }
    }
    return difference(call<array<double>>("standardised double", x, small), e);
}

// -------------------------------------------------------------------------------------------------------- linear layer
struct linear_expectation {
    expectation y, dx, dw, db;
};

/// y, dx, dW and db of a linear layer. n products and additions in T are off by no more than n ε Σ|products|.
template <class T>
linear_expectation linear(const array<T>& x, const array<T>& w, const std::vector<T>& b, const array<T>& dy) {
    const std::size_t batch = x.rows, in = x.columns, out = w.rows;
    linear_expectation e{{batch, out}, {batch, in}, {out, in}, {1, out}};
    const auto add = [](expectation& to, std::size_t at, double term) {
        to.value[at] += term;
        to.bound[at] += std::abs(term);
    };
    for (std::size_t n = 0; n < batch; ++n)
        for (std::size_t o = 0; o < out; ++o) {
            const double g = static_cast<double>(dy(n, o));
            add(e.y, n * out + o, static_cast<double>(b[o]));
            add(e.db, o, g);
            for (std::size_t i = 0; i < in; ++i) {
                const double x_ni = static_cast<double>(x(n, i)), w_oi = static_cast<double>(w(o, i));
                add(e.y, n * out + o, x_ni * w_oi);
                add(e.dx, n * in + i, g * w_oi);
                add(e.dw, o * in + i, g * x_ni);
            }
        }
    const auto finish = [](expectation& to, std::size_t terms) {
        for (double& bound : to.bound) bound = rounding_bound<T>(terms, bound);
    };
    finish(e.y, in + 2), finish(e.dx, out + 1), finish(e.dw, batch + 1), finish(e.db, batch + 1);
    return e;
}

/// Empty, or which of the three gradients is wrong.
template <class T>
std::string difference(const array<T>& d_x, const array<T>& d_w, const std::vector<T>& d_b,
                       const linear_expectation& e) {
    if (const std::string why = difference(d_x, e.dx); !why.empty()) return "dx: " + why;
    if (const std::string why = difference(d_w, e.dw); !why.empty()) return "dW: " + why;
    if (const std::string why = difference(d_b, e.db); !why.empty()) return "db: " + why;
    return {};
}

/// Empty, or what is wrong with the student's layer on these inputs.
template <class T>
std::string fault_of_linear(std::size_t batch, std::size_t in, std::size_t out, std::uint32_t stream, bool backward) {
    const auto x = matrix<T>(batch, in, stream), w = matrix<T>(out, in, stream + 1),
               dy = matrix<T>(batch, out, stream + 2);
    const auto b = vec<T>(out, stream + 3);
    const linear_expectation e = linear(x, w, b, dy);
    if (!backward) return difference(call<array<T>>(of_type<T>("linear_forward"), x, w, b), e.y);
    const auto [d_x, d_w, d_b] =
        call<std::tuple<array<T>, array<T>, std::vector<T>>>(of_type<T>("linear_backward"), x, w, dy);
    return difference(d_x, d_w, d_b, e);
}

// ------------------------------------------------------------------------------------------------------- cross-entropy
struct cross_entropy_expectation {
    expectation p, gradient;
    double loss = 0, loss_bound = 0;
};

/// Softmax, the mean loss and its gradient. With s = largest x_i − x_j: s is rounded, so exp(−s) is off by a factor of
/// 1 ± ε s beside the rounding of exp itself, the sum by 1 ± ε classes more. The loss may be put together in any order,
/// so the largest logit is rounded too.
template <class T>
cross_entropy_expectation cross_entropy(const array<T>& logits, const std::vector<int>& labels) {
    const std::size_t batch = logits.rows, classes = logits.columns;
    cross_entropy_expectation e{{batch, classes}, {batch, classes}};
    const double share = 1 / static_cast<double>(batch);
    for (std::size_t n = 0; n < batch; ++n) {
        const auto x = [&](std::size_t k) { return static_cast<double>(logits(n, k)); };
        double largest = x(0), smallest = x(0), sum = 0;
        for (std::size_t k = 1; k < classes; ++k)
            largest = std::max(largest, x(k)), smallest = std::min(smallest, x(k));
        for (std::size_t k = 0; k < classes; ++k) sum += std::exp(x(k) - largest);
        const double steps = epsilon<T> * (static_cast<double>(classes) + 8);
        for (std::size_t k = 0; k < classes; ++k) {
            const double s = largest - x(k), p = std::exp(-s) / sum, hit = static_cast<int>(k) == labels[n];
            // What is lost below the smallest normal number of T is no error of the formula.
            const double off = 2 * p * (steps + epsilon<T> * s) + static_cast<double>(std::numeric_limits<T>::min());
            e.p.value[n * classes + k] = p;
            e.p.bound[n * classes + k] = off;
            e.gradient.value[n * classes + k] = share * (p - hit);
            e.gradient.bound[n * classes + k] = share * (off + 4 * epsilon<T> * std::abs(p - hit));
        }
        const double loss = std::log(sum) + (largest - x(static_cast<std::size_t>(labels[n])));
        e.loss += share * loss;
        e.loss_bound += share * (2 * steps + 4 * epsilon<T> * (largest - smallest + loss + std::abs(largest)));
    }
    e.loss_bound += 2 * static_cast<double>(batch) * epsilon<double> * e.loss;
    return e;
}

/// Empty, or what is wrong with the student's softmax, loss or gradient on these logits.
template <class T>
std::string fault_of_softmax(const array<T>& logits) {
    return difference(call<array<T>>(of_type<T>("softmax"), logits),
                      cross_entropy(logits, std::vector<int>(logits.rows)).p);
}
template <class T>
std::string fault_of_loss(const array<T>& logits, const std::vector<int>& labels, bool gradient) {
    const cross_entropy_expectation e = cross_entropy(logits, labels);
    const auto [loss, d] = call<std::pair<double, array<T>>>(of_type<T>("cross_entropy"), logits, labels);
    if (gradient) return difference(d, e.gradient);
    return difference(std::span<const double>(&loss, 1), std::vector{e.loss}, {e.loss_bound});
}

// ------------------------------------------------------------------------------------------------------ gradient check
/// scale · Σ (a_i sin θ_i + c_i θ_i² / 2) with |a_i| < 1 and c_i in (2, 3). Its value is right but for its last
/// rounding.
struct smooth {
    std::vector<double> a, c;
    double scale;

    smooth(std::size_t n, std::uint32_t stream, double s = 1) : a(numbers<double>(n, stream)), c(n), scale(s) {
        for (std::size_t i = 0; i < n; ++i) c[i] = 2.5 + 0.5 * a[n - 1 - i];
    }
    double operator()(std::span<const double> theta) const {
        long double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) {
            const long double t = theta[i];
            sum += a[i] * std::sin(t) + c[i] * t * t / 2;
        }
        return static_cast<double>(scale * sum);
    }
    std::vector<double> gradient(std::span<const double> theta) const {
        std::vector<double> g(a.size());
        for (std::size_t i = 0; i < g.size(); ++i) g[i] = scale * (a[i] * std::cos(theta[i]) + c[i] * theta[i]);
        return g;
    }
    /// Ten times both errors of a central difference together: ε^⅔ (|third derivative| / 6 + |f| / 2). Forward
    /// differences miss it with any step: the second derivative is 1 at least, so they are off by 1e-8.
    std::vector<double> bounds(std::span<const double> theta) const {
        const double e = std::pow(epsilon<double>, 2.0 / 3);
        std::vector<double> all(a.size());
        for (std::size_t i = 0; i < all.size(); ++i)
            all[i] = 10 * e * (scale * std::abs(a[i]) / 6 + std::abs((*this)(theta)) / 2);
        return all;
    }
};

/// (right, worst) of the student's check, for a function that the judge answers.
template <class F>
std::pair<bool, std::size_t> check_gradient(const F& f, const std::vector<double>& theta,
                                            const std::vector<double>& gradient) {
    answer("f", [&f](std::vector<double> at) { return f(std::span<const double>(at)); });
    return call<std::pair<bool, std::size_t>>("check_gradient", theta, gradient);
}
template <class F>
std::vector<double> numerical_gradient(const F& f, const std::vector<double>& theta) {
    answer("f", [&f](std::vector<double> at) { return f(std::span<const double>(at)); });
    return call<std::vector<double>>("numerical_gradient", theta);
}

// ---------------------------------------------------------------------------------------------------------- classifier
/// W1, b1, W2, b2 of a classifier.
template <class T>
struct network {
    array<T> w1;
    std::vector<T> b1;
    array<T> w2;
    std::vector<T> b2;
};
template <class T>
struct members<network<T>> {
    static auto of(auto& n) { return std::tie(n.w1, n.b1, n.w2, n.b2); }
};

/// As the lab's classifier.hpp draws it.
template <class T>
network<T> initialised(std::size_t in, std::size_t hidden, std::size_t classes, std::uint64_t drawn) {
    const auto normal = [&](std::size_t rows, std::size_t columns, std::uint32_t stream) {
        const cairn::random_stream random{drawn, stream, 0};
        array<T> w(rows, columns);
        const double deviation = std::sqrt(2.0 / static_cast<double>(columns));
        for (std::size_t i = 0; i < w.values.size(); ++i) w.values[i] = static_cast<T>(deviation * random.normal(i));
        return w;
    };
    return {normal(hidden, in, 1), std::vector<T>(hidden), normal(classes, hidden, 2), std::vector<T>(classes)};
}
inline std::vector<std::size_t> shuffled(std::size_t n, std::uint64_t drawn, std::size_t epoch) {
    const cairn::random_stream random{drawn, 3, static_cast<std::uint32_t>(epoch)};
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.below(i, i)]);
    return order;
}

struct training {
    std::size_t epochs = 10, batch = 32;
    double lr = 0.1, momentum = 0.9, weight_decay = 0;
    std::uint64_t seed = 1;
};
template <class T>
using trained = std::pair<std::vector<double>, network<T>>;  // losses of the epochs, and the network after them
template <class T>
trained<T> train(const network<T>& net, const array<T>& x, const std::vector<int>& labels, const training& c) {
    return call<trained<T>>(of_type<T>("train"), net, x, labels, c.epochs, c.batch, c.lr, c.momentum, c.weight_decay,
                            c.seed);
}

/// Two layers in double by plain loops: loss, and gradients in the order W₁ b₁ W₂ b₂.
struct plain_classifier {
    std::size_t in, hidden, classes;
    std::vector<double> w1, b1, w2, b2;

    explicit plain_classifier(const network<double>& net)
        : in(net.w1.columns),
          hidden(net.w1.rows),
          classes(net.w2.rows),
          w1(net.w1.values),
          b1(net.b1),
          w2(net.w2.values),
          b2(net.b2) {}

    std::vector<std::vector<double>*> parameters() { return {&w1, &b1, &w2, &b2}; }

    std::vector<double> scores(const double* x, std::vector<double>& h) const {
        std::vector<double> z = b2;
        h = b1;
        for (std::size_t j = 0; j < hidden; ++j) {
            for (std::size_t i = 0; i < in; ++i) h[j] += w1[j * in + i] * x[i];
            h[j] = h[j] > 0 ? h[j] : 0;
            for (std::size_t k = 0; k < classes; ++k) z[k] += w2[k * hidden + j] * h[j];
        }
        return z;
    }

    /// Of the rows `which` of x. Returns the mean loss; gradients[0 … 3] are set.
    double gradient(const array<double>& x, const std::vector<int>& labels, const std::vector<std::size_t>& which,
                    std::vector<std::vector<double>>& gradients) {
        gradients.clear();
        for (const auto* p : parameters()) gradients.emplace_back(p->size());
        const double share = 1 / static_cast<double>(which.size());
        double mean = 0;
        for (const std::size_t n : which) {
            const double* const x_n = x.values.data() + n * in;
            std::vector<double> h;
            const std::vector<double> z = scores(x_n, h);
            const double largest = *std::max_element(z.begin(), z.end());
            double sum = 0;
            for (const double v : z) sum += std::exp(v - largest);
            const auto label = static_cast<std::size_t>(labels[n]);
            mean += share * (std::log(sum) + (largest - z[label]));
            std::vector<double> dh(hidden);
            for (std::size_t k = 0; k < classes; ++k) {
                const double dz = share * (std::exp(z[k] - largest) / sum - (k == label ? 1 : 0));
                gradients[3][k] += dz;
                for (std::size_t j = 0; j < hidden; ++j) {
                    gradients[2][k * hidden + j] += dz * h[j];
                    dh[j] += dz * w2[k * hidden + j];
                }
            }
            for (std::size_t j = 0; j < hidden; ++j) {
                if (h[j] <= 0) continue;
                gradients[1][j] += dh[j];
                for (std::size_t i = 0; i < in; ++i) gradients[0][j * in + i] += dh[j] * x_n[i];
            }
        }
        return mean;
    }
};

/// Where a parameter differs from what is expected by more than `bound` times its own size and 1. Empty if nowhere.
inline std::string difference(const network<double>& got, plain_classifier& expected, double bound) {
    const char* const name[] = {"W1", "b1", "W2", "b2"};
    const std::vector<double>* const parts[] = {&got.w1.values, &got.b1, &got.w2.values, &got.b2};
    for (std::size_t i = 0; i < 4; ++i) {
        const std::vector<double>& e = *expected.parameters()[i];
        std::vector<double> bounds(e.size());
        for (std::size_t k = 0; k < e.size(); ++k) bounds[k] = bound * (1 + std::abs(e[k]));
        const std::string why = difference(std::span<const double>(*parts[i]), e, bounds);
        if (!why.empty()) return std::string(name[i]) + ": " + why;
    }
    return {};
}

/// Empty, or what is wrong with the student's loss and gradients. They are sums of some hundred products of numbers of
/// size 1: 1e-12 is some ten times what rounding does to them.
inline std::string fault_of_gradient(const network<double>& net, const array<double>& x,
                                     const std::vector<int>& labels) {
    plain_classifier plain(net);
    std::vector<std::size_t> all(x.rows);
    for (std::size_t n = 0; n < all.size(); ++n) all[n] = n;
    std::vector<std::vector<double>> gradients;
    const double loss = plain.gradient(x, labels, all, gradients);
    for (std::size_t i = 0; i < 4; ++i) *plain.parameters()[i] = gradients[i];
    const auto [got, gradient] = call<std::pair<double, network<double>>>("gradient_of double", net, x, labels);
    const std::string why = difference(std::span<const double>(&got, 1), std::vector{loss}, {1e-12 * (1 + loss)});
    return why.empty() ? difference(gradient, plain, 1e-12) : "loss: " + why;
}

/// Points of the plane on three arms of a spiral that wind round each other; the arm is the label. No line separates
/// them.
template <class T>
struct spirals {
    array<T> x;  // (n, 2)
    std::vector<int> labels;

    spirals(std::size_t n, std::uint32_t stream) : x(n, 2), labels(n) {
        const cairn::random_stream random{seed(), stream, 4};
        for (std::size_t i = 0; i < n; ++i) {
            labels[i] = static_cast<int>(i % 3);
            const double far = 0.15 + 0.85 * static_cast<double>(random.uniform(4 * i));
            const double angle = 6 * far + labels[i] * 2 * std::numbers::pi / 3 + 0.12 * random.normal(4 * i + 2);
            x(i, 0) = static_cast<T>(2 * far * std::cos(angle));
            x(i, 1) = static_cast<T>(2 * far * std::sin(angle));
        }
    }
};

/// The share of rows whose largest score is that of their label.
template <class T>
double accuracy(const array<T>& logits, const std::vector<int>& labels) {
    if (logits.rows != labels.size() || logits.columns == 0) return 0;
    std::size_t right = 0;
    for (std::size_t n = 0; n < labels.size(); ++n) {
        std::size_t best = 0;
        for (std::size_t k = 1; k < logits.columns; ++k)
            if (logits(n, k) > logits(n, best)) best = k;  // NaN is never the largest
        right += std::isfinite(static_cast<double>(logits(n, best))) && static_cast<int>(best) == labels[n];
    }
    return static_cast<double>(right) / static_cast<double>(labels.size());
}

}  // namespace lab
