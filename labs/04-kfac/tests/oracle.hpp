#pragma once
// Reference of the tests: plain loops in double over inputs that are drawn from the seed, the curvature written
// out as one matrix, and Gaussian elimination. And what a result may be off by.

#include "types.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lab {

/// n normal numbers, others for every stream and step.
inline std::vector<double> normals(std::size_t n, std::uint32_t stream, std::uint32_t step = 0) {
    const cairn::random_stream random{seed(), stream, 2 + step};
    std::vector<double> all(n);
    for (std::size_t i = 0; i < n; ++i) all[i] = random.normal(i);
    return all;
}
inline matrix normal_matrix(std::size_t rows, std::size_t cols, std::uint32_t stream) {
    matrix m(rows, cols);
    m.values = normals(rows * cols, stream);
    return m;
}
/// Rows of a layer: inputs around 0.5, gradients of a mean over n examples.
inline curvature_samples random_rows(std::size_t n, std::size_t in, std::size_t out, std::uint32_t stream) {
    curvature_samples rows{normal_matrix(n, in, stream), normal_matrix(n, out, stream + 1)};
    for (double& v : rows.x.values) v += 0.5;
    for (double& v : rows.dy.values) v /= static_cast<double>(n);
    return rows;
}

/// A matrix of numbers with what each may be off by.
struct expected {
    std::size_t rows, cols;
    std::vector<double> values, bound;

    expected(std::size_t r, std::size_t c) : rows(r), cols(c), values(r * c), bound(r * c) {}
    matrix as_matrix() const {
        matrix m(rows, cols);
        m.values = values;
        return m;
    }
};

/// Empty, or what is wrong with `got`: first its shape, then NaN and infinity, then distance.
inline std::string fault(const matrix& got, const expected& e) {
    if (got.rows != e.rows || got.cols != e.cols || got.values.size() != e.values.size())
        return "the matrix is " + std::to_string(got.rows) + " x " + std::to_string(got.cols) + " with " +
               std::to_string(got.values.size()) + " numbers, expected " + std::to_string(e.rows) + " x " +
               std::to_string(e.cols);
    for (std::size_t r = 0; r < e.rows; ++r) {
        const auto row = [&](const std::vector<double>& all) {
            const auto begin = all.begin() + static_cast<std::ptrdiff_t>(r * e.cols);
            return std::vector<double>(begin, begin + static_cast<std::ptrdiff_t>(e.cols));
        };
        const std::vector<double> mine = row(got.values);
        if (const std::string why = difference(std::span<const double>(mine), row(e.values), row(e.bound));
            !why.empty())
            return "row " + std::to_string(r) + ": " + why;
    }
    return {};
}

/// Columns of W, and of rows with the bias's 1: the bias's comes last.
inline std::size_t column_of_input(std::size_t input) { return input; }
inline std::size_t column_of_bias(std::size_t inputs) { return inputs; }

inline matrix with_ones(const matrix& rows) {
    matrix all(rows.rows, rows.cols + 1);
    for (std::size_t i = 0; i < rows.rows; ++i) {
        for (std::size_t c = 0; c < rows.cols; ++c) all(i, column_of_input(c)) = rows(i, c);
        all(i, column_of_bias(rows.cols)) = 1;
    }
    return all;
}

/// Σ left rightᵀ · weight over the rows. Symmetric to the bit where left is right.
inline expected outer_sum(const matrix& left, const matrix& right, double weight = 1) {
    expected sum(left.cols, right.cols);
    std::vector<double> magnitude(sum.values.size());
    for (std::size_t i = 0; i < left.rows; ++i)
        for (std::size_t r = 0; r < sum.rows; ++r)
            for (std::size_t c = 0; c < sum.cols; ++c) {
                const double product = left(i, r) * right(i, c) * weight;
                sum.values[r * sum.cols + c] += product;
                magnitude[r * sum.cols + c] += std::abs(product);
            }
    for (std::size_t i = 0; i < magnitude.size(); ++i)
        sum.bound[i] = rounding_bound<double>(left.rows + 4, magnitude[i]);
    return sum;
}

/// Both factors' sums and the gradient of one layer. Of a mean loss over n examples, one example's gradient is n dy.
struct layer_oracle {
    expected a, g, gradient;
    double examples;

    explicit layer_oracle(const curvature_samples& rows)
        : a(outer_sum(with_ones(rows.x), with_ones(rows.x))),
          g(outer_sum(rows.dy, rows.dy, static_cast<double>(rows.x.rows * rows.x.rows))),
          gradient(outer_sum(rows.dy, with_ones(rows.x))),
          examples(static_cast<double>(rows.x.rows)) {}
    matrix mean_a() const { return mean(a); }
    matrix mean_g() const { return mean(g); }
    factor_sums sums() const { return {a.as_matrix(), g.as_matrix(), examples}; }

private:
    matrix mean(const expected& sum) const {
        matrix m = sum.as_matrix();
        for (double& v : m.values) v /= examples;
        return m;
    }
};

inline double trace(const matrix& m) {
    double sum = 0;
    for (std::size_t i = 0; i < m.rows; ++i) sum += m(i, i);
    return sum;
}
inline double norm(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
}

/// x with m x = b, by elimination with pivots.
inline std::vector<double> solved(matrix m, std::vector<double> b) {
    const std::size_t n = b.size();
    for (std::size_t k = 0; k < n; ++k) {
        std::size_t pivot = k;
        for (std::size_t r = k + 1; r < n; ++r)
            if (std::abs(m(r, k)) > std::abs(m(pivot, k))) pivot = r;
        for (std::size_t c = 0; c < n; ++c) std::swap(m(k, c), m(pivot, c));
        std::swap(b[k], b[pivot]);
        for (std::size_t r = k + 1; r < n; ++r) {
            const double factor = m(r, k) / m(k, k);
            for (std::size_t c = k; c < n; ++c) m(r, c) -= factor * m(k, c);
            b[r] -= factor * b[k];
        }
    }
    for (std::size_t k = n; k-- > 0;) {
        for (std::size_t c = k + 1; c < n; ++c) b[k] -= m(k, c) * b[c];
        b[k] /= m(k, k);
    }
    return b;
}

/// A ⊗ G as a matrix over W's numbers, row by row: element ((o, i), (p, j)) is G(o, p) A(i, j).
inline matrix kronecker(const matrix& a, const matrix& g) {
    matrix block(a.rows * g.rows, a.rows * g.rows);
    for (std::size_t o = 0; o < g.rows; ++o)
        for (std::size_t p = 0; p < g.rows; ++p)
            for (std::size_t i = 0; i < a.rows; ++i)
                for (std::size_t j = 0; j < a.rows; ++j) block(o * a.rows + i, p * a.rows + j) = g(o, p) * a(i, j);
    return block;
}
inline matrix plus_identity(matrix m, double times) {
    for (std::size_t i = 0; i < m.rows; ++i) m(i, i) += times;
    return m;
}

/// V with block V = gradient. Both this and the factored way are backward stable: off by at most some n ε κ ‖V‖, κ the
/// block's condition number and n its rows; some: 64, for the rotations and products on top of elimination.
inline expected direction(const matrix& block, const matrix& gradient, double condition) {
    expected v(gradient.rows, gradient.cols);
    v.values = solved(block, gradient.values);
    const double bound =
        64 * static_cast<double>(block.rows) * std::numeric_limits<double>::epsilon() * condition * norm(v.values);
    std::fill(v.bound.begin(), v.bound.end(), bound);
    return v;
}
/// (A ⊗ G + γ I) V = gradient.
inline expected exact_direction(const matrix& a, const matrix& g, double damping, const matrix& gradient) {
    return direction(plus_identity(kronecker(a, g), damping), gradient, (trace(a) * trace(g) + damping) / damping);
}
/// (A + π √γ I) ⊗ (G + √γ / π I) V = gradient.
inline expected factored_direction(const matrix& a, const matrix& g, double damping, double pi,
                                   const matrix& gradient) {
    const double da = pi * std::sqrt(damping), dg = std::sqrt(damping) / pi;
    return direction(kronecker(plus_identity(a, da), plus_identity(g, dg)), gradient,
                     (trace(a) + da) / da * ((trace(g) + dg) / dg));
}

}  // namespace lab
