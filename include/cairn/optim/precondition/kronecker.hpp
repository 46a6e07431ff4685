#pragma once
// V = F⁻¹ ∇W for one curvature block F = S · (A ⊗ G) + γ I, ∇W and V (out, in):
//   eigen     A = Q_A diag(a) Q_Aᵀ, G = Q_G diag(g) Q_Gᵀ:   V = Q_G [ (Q_Gᵀ ∇W Q_A) ⊘ (S g aᵀ + γ) ] Q_Aᵀ            exact in γ
//   inverse   (A ⊗ G + γ/S I) ≈ (A + π√(γ/S) I) ⊗ (G + √(γ/S)/π I), π² = mean diag A / mean diag G:   V = G⁻¹ ∇W A⁻¹ / S
// Eigen costs a symmetric eigenproblem for each factor (about 9 n³ operations and more) and four products a step; inverse a
// Cholesky inverse (n³) and two products.
//
// A decomposition that fails is tried again with ten times the damping, then in double; if that fails too, the last good one stays.

#include <cairn/device/cpu/linalg.hpp>
#include <cairn/optim/precondition/factor.hpp>

#include <cmath>
#include <string>

namespace cairn {

enum class kfac_form { eigen, inverse };

/// What is kept of a factor to multiply by its inverse.
template <class T>
struct decomposition {
    tensor<T> matrix;  // (n, n): eigenvectors as columns, or the damped inverse
    tensor<T> values;  // (n): eigenvalues ≥ 0, ascending; empty for an inverse
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
    for (const double more : {1.0, 10.0}) {
        try {
            return {inverse_of_positive(cpu{}, detail::damped(factor, more * damping)), {}};
        } catch (const error&) {  // the next attempt
        }
    }
    const tensor<double> exact = detail::damped(detail::converted<double>(factor), 10 * damping);
    return {detail::converted<T>(inverse_of_positive(cpu{}, exact)), {}};
}

/// Overwrites `v` (out, in) with F⁻¹ v. S: positions; damping: γ. Both decompositions are of the same form.
template <class T>
void precondition(const decomposition<T>& a, const decomposition<T>& g, double positions, double damping,
                  tensor<T>& v) {
    const index out = v.extent(0), in = v.extent(1);
    require(a.matrix.extent(0) == in && g.matrix.extent(0) == out, "kfac: decompositions of ", a.matrix.extent(0),
            " inputs and ", g.matrix.extent(0), " outputs for a gradient ", v.shape());
    tensor<T> half(v.shape(), category::workspace);
    const auto product = [&](bool ta, bool tb, index m, index n, index k, const T* x, const T* y, T* z, double scale) {
        gemm(cpu{}, ta, tb, m, n, k, static_cast<T>(scale), x, ta ? m : k, y, tb ? k : n, T{}, z, n);
    };
    if (a.values.empty()) {
        product(false, false, out, in, out, g.matrix.data(), v.data(), half.data(), 1);
        product(false, false, out, in, in, half.data(), a.matrix.data(), v.data(), 1 / positions);
        return;
    }
    product(true, false, out, in, out, g.matrix.data(), v.data(), half.data(), 1);
    product(false, false, out, in, in, half.data(), a.matrix.data(), v.data(), 1);
    const T gamma = static_cast<T>(damping);
    parallel_for(out, std::max<index>(1, 16384 / in), [&](index first, index last) {
        for (index o = first; o < last; ++o) {
            const T scale = static_cast<T>(positions) * g.values[o];
            T* const row = v.data() + o * in;
            for (index i = 0; i < in; ++i) row[i] /= scale * a.values[i] + gamma;
        }
    });
    product(false, false, out, in, out, g.matrix.data(), v.data(), half.data(), 1);
    product(false, true, out, in, in, half.data(), a.matrix.data(), v.data(), 1);
}

}  // namespace cairn
