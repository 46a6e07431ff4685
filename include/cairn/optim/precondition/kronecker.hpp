#pragma once
// V = F⁻¹ ∇W for one curvature block F = S · (A ⊗ G) + γ I, ∇W and V (out, in):
//   eigen     A = Q_A diag(a) Q_Aᵀ, G = Q_G diag(g) Q_Gᵀ:   V = Q_G [ (Q_Gᵀ ∇W Q_A) ⊘ (S g aᵀ + γ) ] Q_Aᵀ, exact in γ
//   inverse   A ⊗ G + γ/S I ≈ (A + π√(γ/S) I) ⊗ (G + √(γ/S)/π I), π² = mean diag A / mean diag G:
//             V = G⁻¹ ∇W A⁻¹ / S of the damped factors
// Eigen costs a symmetric eigenproblem for each factor (about 9 n³ operations and more) and four products a step;
// inverse a Cholesky inverse (n³) and two products.
//
// A decomposition that fails is tried again with ten times the damping, then in double; if that fails too, the last
// good one stays. Of a diagonal factor the decomposition is the diagonal itself, in both forms.

#include <cairn/device/cpu/linalg.hpp>
#include <cairn/device/matrix_batches.hpp>
#include <cairn/optim/precondition/factor.hpp>

#include <utility>
#include <vector>

namespace cairn {

enum class kfac_form { eigen, inverse };

/// A factor in the form in which its inverse is applied.
template <class T, Device D = cpu>
struct decomposition {
    tensor<T, D> matrix;  // (n, n): eigenvectors as columns, or the damped inverse; empty for a diagonal factor
    tensor<T, D>
        values;  // (n): eigenvalues ≥ 0, ascending; of a diagonal factor itself, or its damped inverse; else empty

    bool empty() const { return matrix.empty() && values.empty(); }
};

namespace detail {

template <class To, class From, Device D>
tensor<To, D> converted(const tensor<From, D>& t) {
    tensor<To, D> result(t.shape(), memory_category::workspace);
    for_each(D{}, t.size(), functors::convert<To, From>{}, result.data(), t.data());
    return result;
}

template <class T, Device D>
tensor<T, D> damped(const tensor<T, D>& factor, double damping) {
    tensor<T, D> sum = factor.clone(memory_category::workspace);
    add_to_diagonal(D{}, sum.extent(0), sum.extent(0) + 1, static_cast<T>(damping), sum.data());
    return sum;
}

template <class T, Device D>
decomposition<T, D> eigen_of(const tensor<T, D>& factor) {
    auto [values, vectors] = eigh(D{}, factor);
    for_each(functors::at_least_zero<T>{}, values);
    return {std::move(vectors), std::move(values)};
}

template <class T>
struct inverse_of_diagonal {
    T damping;
    CAIRN_HD void operator()(T& v) const { v = T{1} / ((v < T{} ? T{} : v) + damping); }
};

}  // namespace detail

/// Eigenvectors and eigenvalues of a factor; where float fails, by way of double: *again is set. Throws if that fails
/// too.
template <class T, Device D>
decomposition<T, D> eigen_decomposition_of(const tensor<T, D>& factor, bool* again = nullptr) {
    if (factor.rank() == 1) {
        tensor<T, D> values = factor.clone(memory_category::optimizer);
        for_each(functors::at_least_zero<T>{}, values);
        return {{}, std::move(values)};
    }
    try {
        return detail::eigen_of(factor);
    } catch (const error&) {
        if (again) *again = true;
        const decomposition<double, D> d = detail::eigen_of(detail::converted<double>(factor));
        return {detail::converted<T>(d.matrix), detail::converted<T>(d.values)};
    }
}

/// (factor + damping I)⁻¹; where that fails with ten times the damping, then in double: *again is set. Throws if all of
/// it fails.
template <class T, Device D>
decomposition<T, D> damped_inverse_of(const tensor<T, D>& factor, double damping, bool* again = nullptr) {
    if (factor.rank() == 1) {
        tensor<T, D> values = factor.clone(memory_category::optimizer);
        for_each(detail::inverse_of_diagonal<T>{static_cast<T>(damping)}, values);
        return {{}, std::move(values)};
    }
    for (const double more : {1.0, 10.0}) {
        try {
            return {inverse_of_positive(D{}, detail::damped(factor, more * damping)), {}};
        } catch (const error&) {  // the next attempt
            if (again) *again = true;
        }
    }
    const tensor<double, D> exact = detail::damped(detail::converted<double>(factor), 10 * damping);
    return {detail::converted<T>(inverse_of_positive(D{}, exact)), {}};
}

/// The same of several factors (n, n) together, each with its damping; empty where that fails, and all of them where
/// one is not finite.
template <class T, Device D>
std::vector<decomposition<T, D>> decompositions_of(kfac_form form, const std::vector<const tensor<T, D>*>& factors,
                                                   const std::vector<double>& damping) {
    const auto count = static_cast<index_t>(factors.size());
    const index_t n = factors[0]->extent(0);
    tensor<T, D> all({count, n, n}, memory_category::workspace);
    for (index_t i = 0; i < count; ++i) {
        const auto k = static_cast<std::size_t>(i);
        T* const to = all.data() + i * n * n;
        D::copy_within(to, factors[k]->data(), factors[k]->bytes());
        if (form == kfac_form::inverse) add_to_diagonal(D{}, n, n + 1, static_cast<T>(damping[k]), to);
    }
    std::vector<decomposition<T, D>> result(factors.size());
    if (count_nonfinite(D{}, all.size(), all.data()) > 0) return result;
    matrix_batch<T, D> made =
        form == kfac_form::eigen ? eigh_batched(D{}, std::move(all)) : inverse_of_positive_batched(D{}, std::move(all));
    if (!made.values.empty()) for_each(functors::at_least_zero<T>{}, made.values);
    for (index_t i = 0; i < count; ++i) {
        if (!made.made[static_cast<std::size_t>(i)]) continue;
        decomposition<T, D>& d = result[static_cast<std::size_t>(i)];
        d.matrix = made.matrices.slice(i * n * n, {n, n}).clone(memory_category::optimizer);
        if (!made.values.empty()) d.values = made.values.slice(i * n, {n}).clone(memory_category::optimizer);
    }
    return result;
}

namespace detail {

/// A gradient (out, in) on its way through products, from one place to the next.
template <class T, Device D>
struct gradient_path {
    index_t out, in;
    index_t width;  // of the matrix on the right: `in`, or a part of it that is multiplied as every part is
    const T* here;  // where it is
    T *next, *after;

    void multiply_left(const tensor<T, D>& m, bool transposed, double scale = 1) {  // M v
        gemm(D{}, transposed, false, out, in, out, static_cast<T>(scale), m.data(), out, here, in, T{0}, next, in);
        arrived();
    }
    void multiply_right(const tensor<T, D>& m, bool transposed, double scale = 1) {  // v M
        gemm(D{}, false, transposed, out * (in / width), width, width, static_cast<T>(scale), here, width, m.data(),
             width, T{0}, next, width);
        arrived();
    }
    void scale(const T* g, const T* a, double s, double gamma, bool divide) {
        scale_kronecker(D{}, out, in, width, here, g, a, s, gamma, divide, next);
        arrived();
    }

private:
    void arrived() {
        here = next;
        std::swap(next, after);
    }
};

}  // namespace detail

/// to ← F⁻¹ v, both (out, in), in different memory. S: positions; damping: γ. Both decompositions are of the same form;
/// that of A may be of a part of `in`, for each part alike: the channels of a kernel's points.
template <class T, Device D>
void precondition(const decomposition<T, D>& a, const decomposition<T, D>& g, kfac_form form, double positions,
                  double damping, index_t out, index_t in, const T* v, T* to) {
    const auto size = [](const decomposition<T, D>& d) {
        return d.matrix.empty() ? d.values.size() : d.matrix.extent(0);
    };
    const index_t width = size(a);
    require(width > 0 && in % width == 0 && size(g) == out, "kfac: decompositions of ", size(a), " inputs and ",
            size(g), " outputs for a gradient (", out, ", ", in, ')');
    const bool left = !g.matrix.empty(), right = !a.matrix.empty(), inverse = form == kfac_form::inverse;
    const bool by_rows = !inverse || !left || !right;
    const int moves = (inverse ? 1 : 2) * (left + right) + by_rows;  // the last one ends in `to`
    tensor<T, D> room({out, in}, memory_category::workspace);
    detail::gradient_path<T, D> w{out, in, width, v, to, room.data()};
    if (moves % 2 == 0) std::swap(w.next, w.after);
    if (inverse) {
        if (left) w.multiply_left(g.matrix, false, 1 / positions);
        if (right) w.multiply_right(a.matrix, false, left ? 1 : 1 / positions);
        if (by_rows)
            w.scale(left ? nullptr : g.values.data(), right ? nullptr : a.values.data(),
                    left || right ? 1 : 1 / positions, 0, false);
        return;
    }
    if (left) w.multiply_left(g.matrix, true);
    if (right) w.multiply_right(a.matrix, false);
    w.scale(g.values.data(), a.values.data(), positions, damping, true);
    if (left) w.multiply_left(g.matrix, false);
    if (right) w.multiply_right(a.matrix, true);
}

}  // namespace cairn
