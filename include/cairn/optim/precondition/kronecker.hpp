#pragma once
// V = F⁻¹ ∇W for one curvature block F = S · (A ⊗ G) + γ I, ∇W and V (out, in):
//   eigen     A = Q_A diag(a) Q_Aᵀ, G = Q_G diag(g) Q_Gᵀ:   V = Q_G [ (Q_Gᵀ ∇W Q_A) ⊘ (S g aᵀ + γ) ] Q_Aᵀ            exact in γ
//   inverse   (A ⊗ G + γ/S I) ≈ (A + π√(γ/S) I) ⊗ (G + √(γ/S)/π I), π² = mean diag A / mean diag G:   V = G⁻¹ ∇W A⁻¹ / S
// Eigen costs a symmetric eigenproblem for each factor (about 9 n³ operations and more) and four products a step; inverse a
// Cholesky inverse (n³) and two products.
//
// A decomposition that fails is tried again with ten times the damping, then in double; if that fails too, the last good one stays.
// Of a diagonal factor the decomposition is the diagonal itself, in both forms.

#include <cairn/device/cpu/linalg.hpp>
#include <cairn/optim/precondition/factor.hpp>

#include <cmath>
#include <string>

namespace cairn {

enum class kfac_form { eigen, inverse };

/// What is kept of a factor to multiply by its inverse.
template <class T>
struct decomposition {
    tensor<T> matrix;  // (n, n): eigenvectors as columns, or the damped inverse; empty for a diagonal factor
    tensor<T>
        values;  // (n): eigenvalues ≥ 0, ascending; of a diagonal factor itself, or its damped inverse; else empty

    bool empty() const { return matrix.empty() && values.empty(); }
};

namespace detail {

template <class To, class From>
tensor<To> converted(const tensor<From>& t) {
    tensor<To> result(t.shape(), category::workspace);
    for (index i = 0; i < t.size(); ++i) result[i] = static_cast<To>(t[i]);
    return result;
}

template <class T>
tensor<T> damped(const tensor<T>& factor, double damping) {
    tensor<T> sum = factor.clone(category::workspace);
    for (index i = 0; i < sum.extent(0); ++i) sum[i * (sum.extent(0) + 1)] += static_cast<T>(damping);
    return sum;
}

template <class T>
decomposition<T> eigen_of(const tensor<T>& factor) {
    auto [values, vectors] = eigh(cpu{}, factor);
    for (T& v : values.span()) v = std::max(v, T{});
    return {std::move(vectors), std::move(values)};
}

}  // namespace detail

/// Eigenvectors and eigenvalues of a factor; where float fails, by way of double. Throws if that fails too.
template <class T>
decomposition<T> eigen_decomposition_of(const tensor<T>& factor) {
    if (factor.rank() == 1) {
        tensor<T> values = factor.clone(category::optimizer);
        for (T& v : values.span()) v = std::max(v, T{});
        return {{}, std::move(values)};
    }
    try {
        return detail::eigen_of(factor);
    } catch (const error&) {
        const decomposition<double> d = detail::eigen_of(detail::converted<double>(factor));
        return {detail::converted<T>(d.matrix), detail::converted<T>(d.values)};
    }
}

/// (factor + damping I)⁻¹; where that fails with ten times the damping, then in double. Throws if all of it fails.
template <class T>
decomposition<T> damped_inverse_of(const tensor<T>& factor, double damping) {
    if (factor.rank() == 1) {
        tensor<T> values = factor.clone(category::optimizer);
        for (T& v : values.span()) v = T{1} / (std::max(v, T{}) + static_cast<T>(damping));
        return {{}, std::move(values)};
    }
    for (const double more : {1.0, 10.0}) {
        try {
            return {inverse_of_positive(cpu{}, detail::damped(factor, more * damping)), {}};
        } catch (const error&) {  // the next attempt
        }
    }
    const tensor<double> exact = detail::damped(detail::converted<double>(factor), 10 * damping);
    return {detail::converted<T>(inverse_of_positive(cpu{}, exact)), {}};
}

namespace detail {

/// A gradient (out, in) on its way through products, from one place to the next.
template <class T>
struct gradient_path {
    index out, in;
    index width;    // of the matrix on the right: `in`, or a part of it that is multiplied as every part is
    const T* here;  // where it is
    T *next, *after;

    void multiply_left(const tensor<T>& m, bool transposed, double scale = 1) {  // M v
        gemm(cpu{}, transposed, false, out, in, out, static_cast<T>(scale), m.data(), out, here, in, T{0}, next, in);
        arrived();
    }
    void multiply_right(const tensor<T>& m, bool transposed, double scale = 1) {  // v M
        gemm(cpu{}, false, transposed, out * (in / width), width, width, static_cast<T>(scale), here, width, m.data(),
             width, T{0}, next, width);
        arrived();
    }
    /// body(o, row o, where it goes)
    template <class Body>
    void each_row(Body&& body) {
        parallel_for(out, std::max<index>(1, 16384 / in), [&](index first, index last) {
            for (index o = first; o < last; ++o) body(o, here + o * in, next + o * in);
        });
        arrived();
    }

private:
    void arrived() {
        here = next;
        std::swap(next, after);
    }
};

}  // namespace detail

/// to ← F⁻¹ v, both (out, in), in different memory. S: positions; damping: γ. Both decompositions are of the same form; that of A may be
/// of a part of `in`, for each part alike: the channels of a kernel's points.
template <class T>
void precondition(const decomposition<T>& a, const decomposition<T>& g, kfac_form form, double positions,
                  double damping, index out, index in, const T* v, T* to) {
    const auto size = [](const decomposition<T>& d) { return d.matrix.empty() ? d.values.size() : d.matrix.extent(0); };
    const index width = size(a);
    require(width > 0 && in % width == 0 && size(g) == out, "kfac: decompositions of ", size(a), " inputs and ",
            size(g), " outputs for a gradient (", out, ", ", in, ')');
    const bool left = !g.matrix.empty(), right = !a.matrix.empty(), inverse = form == kfac_form::inverse;
    const bool by_rows = !inverse || !left || !right;
    const int moves = (inverse ? 1 : 2) * (left + right) + by_rows;  // the last one ends in `to`
    tensor<T> room({out, in}, category::workspace);
    detail::gradient_path<T> w{out, in, width, v, to, room.data()};
    if (moves % 2 == 0) std::swap(w.next, w.after);
    if (inverse) {
        if (left) w.multiply_left(g.matrix, false, 1 / positions);
        if (right) w.multiply_right(a.matrix, false, left ? 1 : 1 / positions);
        if (by_rows)
            w.each_row([&](index o, const T* row, T* result) {
                const T scale = left ? T{1} : g.values[o] * (right ? T{1} : static_cast<T>(1 / positions));
                for (index i = 0; i < in; ++i) result[i] = row[i] * scale * (right ? T{1} : a.values[i % width]);
            });
        return;
    }
    if (left) w.multiply_left(g.matrix, true);
    if (right) w.multiply_right(a.matrix, false);
    const T gamma = static_cast<T>(damping);
    w.each_row([&](index o, const T* row, T* result) {
        const T scale = static_cast<T>(positions) * g.values[o];
        for (index part = 0; part < in; part += width)
            for (index i = 0; i < width; ++i) result[part + i] = row[part + i] / (scale * a.values[i] + gamma);
    });
    if (left) w.multiply_left(g.matrix, false);
    if (right) w.multiply_right(a.matrix, true);
}

}  // namespace cairn
