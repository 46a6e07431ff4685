#pragma once
// Lab 4, given: matrices, their products, eigenvectors and inverses, for the sizes of this lab. Nothing to write here.

#include <cmath>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace student {

/// Row-major: m(r, c) is m.values[r * m.cols + c].
struct matrix {
    std::size_t rows = 0, cols = 0;
    std::vector<double> values;

    matrix() = default;
    matrix(std::size_t r, std::size_t c) : rows(r), cols(c), values(r * c) {}  // of zeros
    double& operator()(std::size_t r, std::size_t c) { return values[r * cols + c]; }
    double operator()(std::size_t r, std::size_t c) const { return values[r * cols + c]; }
};

inline matrix transposed(const matrix& m) {
    matrix t(m.cols, m.rows);
    for (std::size_t r = 0; r < m.rows; ++r)
        for (std::size_t c = 0; c < m.cols; ++c) t(c, r) = m(r, c);
    return t;
}

/// a b. Throws where their shapes do not fit.
inline matrix multiply(const matrix& a, const matrix& b) {
    const auto shape = [](const matrix& m) { return std::to_string(m.rows) + " x " + std::to_string(m.cols); };
    if (a.cols != b.rows) throw std::invalid_argument("multiply: " + shape(a) + " by " + shape(b));
    matrix product(a.rows, b.cols);
    for (std::size_t r = 0; r < a.rows; ++r)
        for (std::size_t k = 0; k < a.cols; ++k)
            for (std::size_t c = 0; c < b.cols; ++c) product(r, c) += a(r, k) * b(k, c);
    return product;
}

/// m = vectors · diag(values) · vectorsᵀ: eigenvectors are columns.
struct eigen {
    std::vector<double> values;
    matrix vectors;
};

/// Of a symmetric matrix without negative eigenvalues (those that rounding makes negative are 0), by Jacobi's
/// rotations.
inline eigen eigen_of(matrix m) {
    if (m.rows != m.cols) throw std::invalid_argument("eigen_of: the matrix is not square");
    const std::size_t n = m.rows;
    eigen e{std::vector<double>(n), matrix(n, n)};
    for (std::size_t i = 0; i < n; ++i) e.vectors(i, i) = 1;
    const auto rotate = [](double& x, double& y, double c, double s) {
        const double old = x;
        x = c * old - s * y;
        y = s * old + c * y;
    };
    for (int sweep = 0; sweep < 60; ++sweep) {
        double off = 0, all = 0;
        for (std::size_t r = 0; r < n; ++r)
            for (std::size_t c = 0; c < n; ++c) (r == c ? all : off) += m(r, c) * m(r, c);
        if (!(off > 1e-32 * (all + off))) break;
        for (std::size_t p = 0; p < n; ++p)
            for (std::size_t q = p + 1; q < n; ++q) {
                if (m(p, q) == 0) continue;
                const double theta = (m(q, q) - m(p, p)) / (2 * m(p, q));
                const double t = (theta < 0 ? -1 : 1) / (std::abs(theta) + std::sqrt(theta * theta + 1));
                const double c = 1 / std::sqrt(t * t + 1), s = t * c;
                for (std::size_t k = 0; k < n; ++k) rotate(m(k, p), m(k, q), c, s);
                for (std::size_t k = 0; k < n; ++k) rotate(m(p, k), m(q, k), c, s);
                for (std::size_t k = 0; k < n; ++k) rotate(e.vectors(k, p), e.vectors(k, q), c, s);
            }
    }
    for (std::size_t i = 0; i < n; ++i) e.values[i] = m(i, i) > 0 ? m(i, i) : 0;
    return e;
}

/// Of a symmetric positive definite matrix, by elimination. Throws if it is not.
inline matrix inverse_of(matrix m) {
    if (m.rows != m.cols) throw std::invalid_argument("inverse_of: the matrix is not square");
    const std::size_t n = m.rows;
    matrix inverse(n, n);
    for (std::size_t i = 0; i < n; ++i) inverse(i, i) = 1;
    for (std::size_t k = 0; k < n; ++k) {
        const double pivot = m(k, k);
        if (!(pivot > 0)) throw std::domain_error("inverse_of: the matrix is not positive definite");
        for (std::size_t c = 0; c < n; ++c) m(k, c) /= pivot, inverse(k, c) /= pivot;
        for (std::size_t r = 0; r < n; ++r) {
            if (r == k) continue;
            const double factor = m(r, k);
            for (std::size_t c = 0; c < n; ++c) m(r, c) -= factor * m(k, c), inverse(r, c) -= factor * inverse(k, c);
        }
    }
    return inverse;
}

}  // namespace student
