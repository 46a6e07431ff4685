#pragma once
// Euclidean norms of tensors and of models. Sums are taken in double over fixed pieces in fixed order: the same bits on
// any number of threads.
// The norm of a model is √ Σ_p Σ_i x_pi²: the squares of each parameter are added up by themselves, then the sums of
// the parameters one after the other in path order, the order in which the whole model lists them. So stages, which
// hold some of the parameters each, make the bits of the whole model's norm from theirs.

#include <cairn/core/range.hpp>
#include <cairn/device/cpu/reduce.hpp>

#include <algorithm>
#include <cmath>
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
    explicit squares_by_parameter(std::span<const range> parameters) {
        const parts_in_pieces parts(parameters, piece_of_parts(D{}));
        for (const range& p : parameters) elements_ += p.count;
        pieces_ = on_device(parts.pieces);
        first_ = on_device(parts.first);
    }

    /// Of each parameter. Waits for a device.
    template <class T>
    std::vector<double> operator()(const T* x) const {
        const tensor<double> sums = host_side(sums_of(x));
        return {sums.span().begin(), sums.span().end()};
    }

    /// The norm of all parameters into *out, in the memory of a grid device. Does not wait.
    template <class T>
    void norm_into(const T* x, double* out) const {
        norm_in_order_into(D{}, sums_of(x), out);
    }

private:
    template <class T>
    tensor<double, D> sums_of(const T* x) const {
        tensor<double, D> sums({first_.size() - 1}, memory_category::workspace);
        sums_of_squares_into(D{}, elements_, pieces_, first_, x, sums);
        return sums;
    }

    template <class U>
    static tensor<U, D> on_device(const std::vector<U>& values) {
        tensor<U> here({static_cast<index_t>(values.size())}, memory_category::workspace);
        std::copy(values.begin(), values.end(), here.data());
        return device_side<D>(here, memory_category::optimizer);
    }

    index_t elements_ = 0;
    tensor<range, D> pieces_;  // see parts_in_pieces
    tensor<index_t, D> first_;
};

}  // namespace cairn
