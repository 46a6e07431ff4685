#pragma once
// Common part of elementwise losses: checks, weights, the fused pass and the mean.
//   value = 1/n Σ_i s_row(i) w_col(i) l(x_i, t_i)      gradient_i = s_row(i) w_col(i) / n · l'(x_i, t_i)
// n: number of elements of the prediction. Rows are samples, columns the outputs of one sample.

#include <cairn/core/kernel_call.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/nn/loss/loss.hpp>
#include <cairn/nn/loss/weights_on_device.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// Weights of a loss over single elements. Empty means all 1. They multiply; the mean still divides by the number of
/// elements.
struct element_weights {
    std::vector<double> outputs;  // one for each output (last axes of the prediction)
    std::vector<double> samples;  // one for each sample (first axis)
    weights_on_device kept_outputs = {}, kept_samples = {};
};

namespace detail {

template <class T, class D>
void check_elements(const char* name, const tensor<T, D>& x, const tensor<T, D>& target,
                    const element_weights& weights) {
    require(x.rank() >= 1 && x.size() > 0, name, ": prediction of shape ", x.shape(), " has no elements");
    require(x.shape() == target.shape(), name, ": prediction has shape ", x.shape(), ", target ", target.shape());
    const index_t rows = x.extent(0), columns = x.size() / rows;
    require(weights.outputs.empty() || static_cast<index_t>(weights.outputs.size()) == columns, name, ": ",
            weights.outputs.size(), " output weights for ", columns, " outputs of prediction ", x.shape());
    require(weights.samples.empty() || static_cast<index_t>(weights.samples.size()) == rows, name, ": ",
            weights.samples.size(), " sample weights for ", rows, " samples");
}

/// Loss of one element and its gradient; w: its weight.
template <class T, class Rule>
struct scored_element {
    Rule rule;
    T mean;
    CAIRN_HD void operator()(double& sum, double&, T x, T t, T& gradient) const {
        sum += static_cast<double>(rule(x, t, mean, gradient));
    }
    CAIRN_HD void operator()(double& sum, double&, T w, T x, T t, T& gradient) const {
        sum += static_cast<double>(w) * static_cast<double>(rule(x, t, w * mean, gradient));
    }
};

}  // namespace detail

/// The loss of prediction x by a rule for one element: rule(x, t, scale, gradient&) sets the gradient, times scale, and
/// returns the element's loss, not scaled; on a device the rule has a name and is CAIRN_HD. Errors name `name`.
template <class T, Device D, class Rule>
loss_result<T, D> elementwise_loss(const char* name, tensor<T, D> x, const tensor<T, D>& target,
                                   const element_weights& weights, Rule rule) {
    detail::check_elements(name, x, target, weights);
    const index_t rows = x.extent(0), columns = x.size() / rows;
    const double mean = 1.0 / static_cast<double>(x.size());
    const detail::scored_element<T, Rule> score{rule, static_cast<T>(mean)};
    tensor<T, D> gradient = gradient_over(x);
    tensor<double, D> sums({2}, memory_category::workspace);
    const kernel_call call(name, format_name<T>, 4.0 * static_cast<double>(x.size()),
                           3.0 * static_cast<double>(x.bytes()), {rows, columns});
    if (weights.outputs.empty() && weights.samples.empty()) {
        sum_each_into(D{}, x.size(), score, sums.data(), x.data(), target.data(), gradient.data());
    } else {
        const tensor<T, D> of_row = weights.kept_samples.template of<T, D>(weights.samples),
                           of_column = weights.kept_outputs.template of<T, D>(weights.outputs);
        sum_each_weighted_into(D{}, rows, columns, of_row.data(), of_column.data(), score, sums.data(), x.data(),
                               target.data(), gradient.data());
    }
    scalar_on<D> value = scalar_of(sums.slice(0, {1}));
    value *= mean;
    return {std::move(value), std::move(gradient)};
}

}  // namespace cairn
