#pragma once
// Euclidean norms of tensors and of models, and a fused pass that changes arrays and sums at once, for layer-wise
// optimizers. Sums are taken in double over fixed pieces in fixed order: the same bits on any number of threads.
// The norm of a model is √ Σ_p Σ_i x_pi²: the squares of each parameter are added up by themselves, then the sums of
// the parameters one after the other in path order, the order in which the whole model lists them. So stages, which
// hold some of the parameters each, make the bits of the whole model's norm from theirs.

#include <cairn/core/for_each.hpp>
#include <cairn/core/range.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <algorithm>
#include <cmath>
#include <concepts>
#include <numeric>
#include <span>
#include <vector>

namespace cairn {

/// ‖x‖₂. Not finite exactly when an element is not, for float; squares of doubles above 1e154 overflow as well. 1 read
/// per element.
template <class T, class D>
double norm(const tensor<T, D>& x) {
    return std::sqrt(sum_of_squares(D{}, x.size(), x.data()));
}

/// The sum of a model's sums by parameter, which come in path order.
inline double sum_in_path_order(std::span<const double> by_parameter) {
    return std::accumulate(by_parameter.begin(), by_parameter.end(), 0.0);
}

/// Σ x² by parameter, of an array that holds a number for each element of an arena, or of a part of one.
template <Device D = cpu>
class squares_by_parameter {
public:
    /// `parameters`: where each lies in the array, in path order; those that are elsewhere have no elements, and the
    /// sum 0.
    explicit squares_by_parameter(std::span<const range> parameters) : parts_(parameters, piece_of_parts(D{})) {
        for (const range& p : parameters) elements_ += p.count;
        if constexpr (!std::same_as<D, cpu>) {
            pieces_ = on_device(parts_.pieces);
            first_ = on_device(parts_.first);
        }
    }

    /// Of each parameter. Waits for a device.
    template <class T>
    std::vector<double> operator()(const T* x) const {
        if constexpr (std::same_as<D, cpu>) {
            return sums_of_squares(D{}, parts_, x);
        } else {
            tensor<double, D> sums({parts_.parts()}, memory_category::workspace);
            sums_of_squares_into(D{}, elements_, pieces_, first_, x, sums);
            std::vector<double> here(static_cast<std::size_t>(parts_.parts()));
            D::copy_to_host(here.data(), sums.data(), sums.bytes());
            return here;
        }
    }

    /// The norm of all parameters into *out, in the memory of a device that is not the host. Does not wait.
    template <class T>
    void norm_into(const T* x, double* out) const {
        tensor<double, D> sums({parts_.parts()}, memory_category::workspace);
        sums_of_squares_into(D{}, elements_, pieces_, first_, x, sums);
        norm_in_order_into(D{}, sums, out);
    }

private:
    template <class U>
    static tensor<U, D> on_device(const std::vector<U>& values) {
        tensor<U> here({static_cast<index_t>(values.size())}, memory_category::workspace);
        std::copy(values.begin(), values.end(), here.data());
        return tensor<U, D>::copy_of(here, memory_category::optimizer);
    }

    parts_in_pieces parts_;
    index_t elements_ = 0;
    tensor<range, D> pieces_;  // of parts_, on a device
    tensor<index_t, D> first_;
};

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
