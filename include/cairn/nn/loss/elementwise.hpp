#pragma once
// Common part of elementwise losses: checks, weights, the fused pass and the mean.
//   value = 1/n Σ_i s_row(i) w_col(i) l(x_i, t_i)      gradient_i = s_row(i) w_col(i) / n · l'(x_i, t_i)
// n: number of elements of the prediction. Rows are samples, columns the outputs of one sample.

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/for_each.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/nn/loss/loss.hpp>
#include <cairn/nn/loss/weights_on_device.hpp>

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

/// One element on a device: its gradient, and its loss times its weight w.
template <class T, class Rule>
struct scored_element {
    Rule rule;
    T mean;
    CAIRN_HD void operator()(T x, T t, T& gradient, T& loss) const { loss = rule(x, t, mean, gradient); }
    CAIRN_HD void operator()(T w, T x, T t, T& gradient, T& loss) const { loss = w * rule(x, t, w * mean, gradient); }
};

}  // namespace detail

/// The loss of prediction x by a rule for one element: rule(x, t, scale, gradient&) sets the gradient, times scale, and
/// returns the element's loss, not scaled. Errors name `name`.
template <class T, class Rule>
loss_result<T, cpu> elementwise_loss(const char* name, tensor<T, cpu> x, const tensor<T, cpu>& target,
                                     const element_weights& weights, Rule rule) {
    detail::check_elements(name, x, target, weights);
    const index_t rows = x.extent(0), columns = x.size() / rows;
    tensor<T, cpu> gradient = gradient_over(x);
    const T *const p = x.data(), *const t = target.data();
    T* const g = gradient.data();
    const double mean = 1.0 / static_cast<double>(x.size());
    const auto row_weight = [&](index_t row) {
        return weights.samples.empty() ? 1.0 : weights.samples[static_cast<std::size_t>(row)];
    };
    double sum = 0;
    if (weights.outputs.empty() && weights.samples.empty()) {
        sum = parallel_sum<double>(x.size(), 4096, [&](index_t begin, index_t end) {
            double part = 0;
            const T scale = static_cast<T>(mean);
#pragma omp simd reduction(+ : part)
            for (index_t i = begin; i < end; ++i) part += static_cast<double>(rule(p[i], t[i], scale, g[i]));
            return part;
        });
    } else {
        sum = parallel_sum<double>(rows, 1 + 4096 / columns, [&](index_t begin, index_t end) {
            double part = 0;
            for (index_t row = begin; row < end; ++row)
                for (index_t k = 0; k < columns; ++k) {
                    const double w = row_weight(row) *
                                     (weights.outputs.empty() ? 1.0 : weights.outputs[static_cast<std::size_t>(k)]);
                    const index_t i = row * columns + k;
                    part += w * static_cast<double>(rule(p[i], t[i], static_cast<T>(w * mean), g[i]));
                }
            return part;
        });
    }
    flop_counter::count(4.0 * static_cast<double>(x.size()), 3.0 * static_cast<double>(x.bytes()));
    return {sum * mean, std::move(gradient)};
}

/// The same on another device: losses of elements in a workspace, then their sum in double. The rule has a name there.
template <class T, Device D, class Rule>
    requires(!std::same_as<D, cpu>)
loss_result<T, D> elementwise_loss(const char* name, tensor<T, D> x, const tensor<T, D>& target,
                                   const element_weights& weights, Rule rule) {
    detail::check_elements(name, x, target, weights);
    tensor<T, D> gradient = gradient_over(x), losses(x.shape(), memory_category::workspace);
    const double mean = 1.0 / static_cast<double>(x.size());
    const detail::scored_element<T, Rule> score{rule, static_cast<T>(mean)};
    if (weights.outputs.empty() && weights.samples.empty()) {
        for_each(D{}, x.size(), score, x.data(), target.data(), gradient.data(), losses.data());
    } else {
        const index_t rows = x.extent(0), columns = x.size() / rows;
        const tensor<T, D> of_row = weights.kept_samples.template of<T, D>(weights.samples),
                           of_column = weights.kept_outputs.template of<T, D>(weights.outputs);
        for_each_weighted(D{}, rows, columns, of_row.data(), of_column.data(), score, x.data(), target.data(),
                          gradient.data(), losses.data());
    }
    tensor<double, D> all({1}, memory_category::workspace);
    sum_into(D{}, x.size(), losses.data(), all.data());
    scalar_on<D> value(std::move(all));
    value *= mean;
    return {std::move(value), std::move(gradient)};
}

}  // namespace cairn
