#pragma once
// Layers in bfloat16 or float16 over float weights, gradients and statistics (layer_parameter). A layer computes with a
// rounded copy of a weight; gradients accumulate in the type of the weight.

#include <cairn/core/cost.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/parameter.hpp>

#include <concepts>
#include <utility>

namespace cairn {

/// x itself where it is of T, else a copy rounded to T.
template <class T, class W, Device D>
tensor<T, D> cast(const tensor<W, D>& x, memory_category kind = memory_category::workspace) {
    if constexpr (std::same_as<T, W>) {
        return x.share();
    } else {
        tensor<T, D> copy(x.shape(), kind);
        if (x.size() > 0) for_each(D{}, x.size(), functors::convert<T, W>{}, copy.data(), x.data());
        return copy;
    }
}

/// What cast<T> of n numbers of W costs.
template <class T, class W>
phase_cost cast_cost(double n) {
    return std::same_as<T, W> ? phase_cost{} : phase_cost{2 * n, (sizeof(T) + sizeof(W)) * n};
}

/// Memory category of a tensor of W that cast<T> takes over: it is the result itself, or freed by the cast.
template <class T, class W>
constexpr memory_category before_cast = std::same_as<T, W> ? memory_category::activations : memory_category::workspace;

template <class T, class W, Device D>
tensor<T, D> cast(tensor<W, D>&& x) {
    if constexpr (std::same_as<T, W>)
        return std::move(x);
    else
        return cast<T>(std::as_const(x), memory_category::activations);
}

}  // namespace cairn
