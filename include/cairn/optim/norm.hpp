#pragma once
// Euclidean norms of tensors, and a fused pass that changes arrays and sums at once, for layer-wise optimizers. Sums
// are taken in double over fixed pieces in fixed order: the same bits on any number of threads.

#include <cairn/core/for_each.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <cmath>

namespace cairn {

/// ‖x‖₂. Not finite exactly when an element is not, for float; squares of doubles above 1e154 overflow as well. 1 read
/// per element.
template <class T, class D>
double norm(const tensor<T, D>& x) {
    return std::sqrt(sum_of_squares(D{}, x.size(), x.data()));
}

namespace detail {
// Out of the lambda below: inside it, compilers miss that the loop can be vectorised.
template <class F, class... Elements>
sum_pair sum_run(index_t n, F f, Elements*... arrays) {
    double first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
    for (index_t i = 0; i < n; ++i) f(first, second, arrays[i]...);
    return {first, second};
}
}  // namespace detail

/// Calls f(first, second, a[i], b[i], …) for i in [0, n): f may change the elements and adds to the two sums. Each
/// array moves once.
template <class F, class... Elements>
sum_pair sum_each(cpu, index_t n, F f, Elements*... arrays) {
    constexpr index_t grain = 1 << 14;
    return parallel_sum<sum_pair>(
        n, grain, [&](index_t begin, index_t end) { return detail::sum_run(end - begin, f, (arrays + begin)...); });
}

}  // namespace cairn
