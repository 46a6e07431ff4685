#pragma once
// Layers that compute in fewer digits than their parameters have (layer_parameter): bfloat16 or float16 with float weights, gradients and
// statistics.
// A layer takes a rounded copy of a weight where it computes, and adds a rounded gradient to that of the weight.

#include <cairn/core/for_each.hpp>
#include <cairn/core/parameter.hpp>

#include <concepts>
#include <utility>

namespace cairn {

namespace rules {

/// sum += x, of another type.
template <class W, class T>
struct add_rounded {
    CAIRN_HD void operator()(W& sum, T x) const { sum += static_cast<W>(x); }
};

}  // namespace rules

/// x itself where it is of T, else a copy rounded to T.
template <class T, class W, Device D>
tensor<T, D> rounded(const tensor<W, D>& x, category kind = category::workspace) {
    if constexpr (std::same_as<T, W>) {
        return x.share();
    } else {
        tensor<T, D> copy(x.shape(), kind);
        if (x.size() > 0) for_each(D{}, x.size(), rules::convert<T, W>{}, copy.data(), x.data());
        return copy;
    }
}

template <class T, class W, Device D>
tensor<T, D> rounded(tensor<W, D>&& x) {
    if constexpr (std::same_as<T, W>)
        return std::move(x);
    else
        return rounded<T>(std::as_const(x), category::activations);
}

/// Calls add(T* to, W keep) once: to ← keep · to + a gradient in T, keep being 1 or 0, for a gradient in the weight's type.
template <class T, class W, Device D, class Add>
void add_to_gradient(tensor<W, D>& gradient, Add&& add) {
    if constexpr (std::same_as<T, W>) {
        add(gradient.data(), W{1});
    } else {
        tensor<T, D> part(gradient.shape(), category::workspace);
        add(part.data(), W{0});
        for_each(D{}, gradient.size(), rules::add_rounded<W, T>{}, gradient.data(), part.data());
    }
}

}  // namespace cairn
