#pragma once
// Values at each pixel of a field, some of which may not be known. Loss: mean squared error of the known ones
// (nn/loss/known_mean_squared.hpp), each with its weight, such as the area of its cell. Figures, over known pixels, of
// each variable in its own units; w: weight, u: truth, u': prediction
//   R² = 1 − Σ w (u' − u)² / Σ w (u − mean)²,   RMSE = √(Σ w (u' − u)² / Σ w)       sums over samples and pixels
//   relative L2 = mean over samples of ‖u' − u‖ / ‖u‖,   ‖u‖² = Σ w u² of a sample      samples of norm 0 do not count
// The first two figures are means over the variables.

#include <cairn/nn/loss/known_mean_squared.hpp>
#include <cairn/objectives/objective.hpp>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace cairn {

class field_regression {
public:
    static constexpr averaged_outputs averages = averaged_outputs::values;

    explicit field_regression(target_info info) : info_(std::move(info)) { loss_.weights.outputs = info_.weights; }

    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        const tensor<float, D> targets = s.targets.reshaped(y.shape());
        return loss_(std::move(y), targets);
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
};

}  // namespace cairn
