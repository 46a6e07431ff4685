#pragma once
// The concepts of an optimizer, and one update of one tensor by one (optimizer.hpp has the driver of all
// parameters).

#include <cairn/core/range.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/optim/update_context.hpp>

#include <concepts>
#include <string>
#include <tuple>
#include <type_traits>
#include <vector>

namespace cairn {

template <class O, class T>
concept ElementwiseOptimizer = requires(const O& o, const update_context& at) {
    o.template rule<T>(at);
};

template <class O, class T, class D>
concept LayerwiseOptimizer = requires(const O& o, tensor<T, D>& t, typename O::template state<T, D>& s,
                                      const update_context& at) {
    o.update(t, t, s, at);
};

/// An optimizer for parameters of T on D.
template <class O, class T = float, class D = cpu>
concept Optimizer = requires(const O& o) {
    typename O::config;
    O::template state<T, D>::names;  // what each tensor of the state is called
    { O::name } -> std::convertible_to<std::string>;
    o.check();  // throws on hyperparameters that make no sense
}
&&(ElementwiseOptimizer<O, T> || LayerwiseOptimizer<O, T, D>);

/// An optimizer of a part of the arena, on one of several ranks.
///   owned() → range     multiples of 16 elements; layer-wise optimizers are given whole parameters
///   over_all(sums) → sums     from Σ g² by parameter of this part (0 of parameters that are elsewhere) those of all
///                             parameters of the whole model, in path order: makes the norm of all gradients. A slice
///                             that several ranks hold is counted once
/// and, where parameters are slices and it is layer-wise,
///   sum_over_slices           a function: sums over one parameter's slices, see update_context::over_slices
template <class O>
concept PartialOptimizer = requires(const O& o) {
    { o.owned() } -> std::same_as<range>;
    { o.over_all(std::vector<double>{}) } -> std::same_as<std::vector<double>>;
};

/// References to the tensors of a state, in order.
template <class State>
auto fields(State& s) {
    constexpr std::size_t count = std::remove_const_t<State>::names.size();
    static_assert(count <= 4, "fields: a state of more than 4 tensors needs one more line here");
    if constexpr (count == 0) {
        return std::tuple<>{};
    } else if constexpr (count == 1) {
        auto& [a] = s;
        return std::tie(a);
    } else if constexpr (count == 2) {
        auto& [a, b] = s;
        return std::tie(a, b);
    } else if constexpr (count == 3) {
        auto& [a, b, c] = s;
        return std::tie(a, b, c);
    } else {
        auto& [a, b, c, d] = s;
        return std::tie(a, b, c, d);
    }
}

/// One update of one tensor. An optimizer may overwrite `grad`.
template <class T, Device D, Optimizer<T, D> O>
void update(const O& o, tensor<T, D>& theta, tensor<T, D>& grad, typename O::template state<T, D>& s,
            const update_context& at) {
    if constexpr (ElementwiseOptimizer<O, T>)
        std::apply([&](auto&... field) { change_each(at, o.template rule<T>(at), theta, grad, field...); }, fields(s));
    else
        o.update(theta, grad, s, at);
}

}  // namespace cairn
