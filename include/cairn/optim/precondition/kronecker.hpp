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

/// v ← M v, v M or with Mᵀ; M (n, n), v (out, in).
template <class T>
void multiply_left(const tensor<T>& m, bool transposed, tensor<T>& v, tensor<T>& room) {
    const index out = v.extent(0), in = v.extent(1);
    gemm(cpu{}, transposed, false, out, in, out, T{1}, m.data(), out, v.data(), in, T{0}, room.data(), in);
    std::swap(v, room);
}
template <class T>
void multiply_right(const tensor<T>& m, bool transposed, tensor<T>& v, tensor<T>& room) {
    const index out = v.extent(0), in = v.extent(1);
    gemm(cpu{}, false, transposed, out, in, in, T{1}, v.data(), in, m.data(), in, T{0}, room.data(), in);
    std::swap(v, room);
}

}  // namespace detail

/// F⁻¹ v for v (out, in), which it may overwrite. S: positions; damping: γ. Both decompositions are of the same form.
template <class T>
tensor<T> precondition(const decomposition<T>& a, const decomposition<T>& g, kfac_form form, double positions,
                       double damping, tensor<T> v) {
    const index out = v.extent(0), in = v.extent(1);
    const auto size = [](const decomposition<T>& d) { return d.matrix.empty() ? d.values.size() : d.matrix.extent(0); };
    require(size(a) == in && size(g) == out, "kfac: decompositions of ", size(a), " inputs and ", size(g),
            " outputs for a gradient ", v.shape());
    tensor<T> room(v.shape(), category::workspace);
    const auto each_row = [&](auto&& body) {
        parallel_for(out, std::max<index>(1, 16384 / in), [&](index first, index last) {
            for (index o = first; o < last; ++o) body(o, v.data() + o * in);
        });
    };
    if (form == kfac_form::inverse) {
        if (!g.matrix.empty()) detail::multiply_left(g.matrix, false, v, room);
        if (!a.matrix.empty()) detail::multiply_right(a.matrix, false, v, room);
        each_row([&](index o, T* row) {
            const T scale = static_cast<T>(1 / positions) * (g.matrix.empty() ? g.values[o] : T{1});
            for (index i = 0; i < in; ++i) row[i] *= scale * (a.matrix.empty() ? a.values[i] : T{1});
        });
        return v;
    }
    if (!g.matrix.empty()) detail::multiply_left(g.matrix, true, v, room);
    if (!a.matrix.empty()) detail::multiply_right(a.matrix, false, v, room);
    const T gamma = static_cast<T>(damping);
    each_row([&](index o, T* row) {
        const T scale = static_cast<T>(positions) * g.values[o];
        for (index i = 0; i < in; ++i) row[i] /= scale * a.values[i] + gamma;
    });
    if (!g.matrix.empty()) detail::multiply_left(g.matrix, false, v, room);
    if (!a.matrix.empty()) detail::multiply_right(a.matrix, true, v, room);
    return v;
}

}  // namespace cairn
