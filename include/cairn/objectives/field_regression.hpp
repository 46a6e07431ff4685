#pragma once
// Values at each pixel of a field, some of which may not be known. Loss: mean squared error of the known ones
// (nn/loss/known_mean_squared.hpp), each with its weight, such as the area of its cell. Figures, over known pixels, of
// each variable in its own units; w: weight, u: truth, u': prediction
//   R² = 1 − Σ w (u' − u)² / Σ w (u − mean)²,   RMSE = √(Σ w (u' − u)² / Σ w)       sums over samples and pixels
//   relative L2 = mean over samples of ‖u' − u‖ / ‖u‖,   ‖u‖² = Σ w u² of a sample      samples of norm 0 do not count
// The first two figures are means over the variables.

#include <cairn/nn/loss/known_mean_squared.hpp>
#include <cairn/objectives/regression.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace cairn {

namespace functors {

/// Element i of rows of `columns`, times the factor of its column.
template <class T>
struct scale_column {
    index_t columns;
    const T* factors;
    T* x;
    CAIRN_HD void operator()(index_t i) const { x[i] *= factors[i % columns]; }
};

}  // namespace functors

class field_regression {
public:
    static constexpr averaged_outputs averages = averaged_outputs::values;

    explicit field_regression(target_info info) : info_(std::move(info)) {
        loss_.weights.outputs = info_.weights;
        for (const double weight : info_.weights) roots_.push_back(std::sqrt(weight));
    }

    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        const tensor<float, D> targets = s.targets.reshaped(y.shape());
        return loss_(std::move(y), targets);
    }

    /// As that of values of a sample (objectives/regression.hpp), of variance 1 / weight. A value that is not known is
    /// drawn, too.
    template <Device D>
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first) const {
        y = regression{info_}.sampled_gradient(std::move(y), random, first);
        if (roots_.empty() || on_phantom_rank()) return y;
        const tensor<float, D> roots = kept_roots_.of<float, D>(roots_);
        for_indices(D{}, y.size(), functors::scale_column<float>{roots.size(), roots.data(), y.data()});
        return y;
    }

    evaluation start() const {
        evaluation e;
        for (const char* sum : {"weight", "truth", "truth_squared", "error_squared", "relative", "fields"})
            e.sums[sum].assign(static_cast<std::size_t>(info_.count()), 0);
        return e;
    }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const tensor<float> values = y.on_host(memory_category::workspace);
        const index_t variables = info_.count(), places = values.size() / b.host.count / variables;
        for (index_t i = 0; i < b.host.count; ++i)
            for (index_t k = 0; k < variables; ++k) {
                const auto v = static_cast<std::size_t>(k);
                double norm = 0, error = 0;
                for (index_t p = 0; p < places; ++p) {
                    const index_t at = (i * places + p) * variables + k;
                    const double mean = static_cast<double>(info_.mean[v]), scale = static_cast<double>(info_.scale[v]),
                                 truth = mean + scale * static_cast<double>(b.host.targets[at]),
                                 difference = mean + scale * static_cast<double>(values[at]) - truth,
                                 weight = info_.weights.empty()
                                              ? 1
                                              : info_.weights[static_cast<std::size_t>(p * variables + k)];
                    if (std::isnan(truth)) continue;
                    e.sums["weight"][v] += weight;
                    e.sums["truth"][v] += weight * truth;
                    norm += weight * truth * truth;
                    error += weight * difference * difference;
                }
                e.sums["truth_squared"][v] += norm;
                e.sums["error_squared"][v] += error;
                if (norm == 0) continue;
                e.sums["relative"][v] += std::sqrt(error / norm);
                ++e.sums["fields"][v];
            }
    }
    metric_list metrics(const evaluation& e) const {
        metric_list all{{"r2", 0}, {"relative_l2", 0}};
        const auto n = static_cast<std::size_t>(info_.count());
        for (std::size_t k = 0; k < n; ++k) {
            const auto sum = [&](const char* name) { return e.sums.at(name)[k]; };
            const double weight = std::max(sum("weight"), 1e-300),
                         total = sum("truth_squared") - sum("truth") * sum("truth") / weight,
                         r2 = total > 0 ? 1 - sum("error_squared") / total : 0,
                         relative = sum("fields") > 0 ? sum("relative") / sum("fields") : 0;
            all[0].second += r2 / static_cast<double>(n);
            all[1].second += relative / static_cast<double>(n);
            all.emplace_back("rmse_" + info_.names[k], std::sqrt(sum("error_squared") / weight));
            if (n == 1) continue;
            all.emplace_back("r2_" + info_.names[k], r2);
            all.emplace_back("relative_l2_" + info_.names[k], relative);
        }
        return all;
    }

private:
    target_info info_;
    known_mean_squared loss_;
    std::vector<double> roots_;  // of weights
    weights_on_device kept_roots_;
};

}  // namespace cairn
