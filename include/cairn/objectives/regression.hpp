#pragma once
// Values for each sample. Loss: mean squared error. Figures: how many times better than always predicting the mean (the
// mean squared error of that over the network's, values weighted alike), R², root of the mean squared and mean
// absolute error of each value, in physical units. The report has predicted against true values.

#include <cairn/device/cpu/label_sampling.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/objectives/objective.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace cairn {

struct regression {
    static constexpr averaged_outputs averages = averaged_outputs::values;

    target_info info = {};

    template <Device D>
    loss_result<float, D> loss(tensor<float, D> y, const samples<D>& s) const {
        return mean_squared{}(std::move(y), s.targets);
    }
    /// Values from the normal distribution around y of which the loss is the negative logarithm: −log p = (y − t)² /
    /// count of a sample's values, as the loss is a mean of squares.
    template <Device D>
    tensor<float, D> sampled_gradient(tensor<float, D> y, const random_stream& random, index_t first) const {
        const double count = static_cast<double>(y.extent(0)), values = static_cast<double>(y.size()) / count;
        sample_normals(D{}, y.size(), static_cast<float>(std::sqrt(2 / values) / count), random, y.data(),
                       first * (y.size() / y.extent(0)));
        return y;
    }

    evaluation start() const {
        const std::vector<std::vector<double>> lists(static_cast<std::size_t>(info.count()));
        return {.sums = {}, .truth = lists, .predicted = lists};
    }
    template <Device D>
    void add(evaluation& e, const tensor<float, D>& y, const device_batch<D>& b) const {
        const tensor<float> values = y.on_host(memory_category::workspace);
        for (index_t i = 0; i < values.size(); ++i) {
            const auto k = static_cast<std::size_t>(i % info.count());
            const auto physical = [&](float v) {
                return static_cast<double>(info.mean[k]) + static_cast<double>(info.scale[k]) * static_cast<double>(v);
            };
            e.truth[k].push_back(physical(b.host.targets[i]));
            e.predicted[k].push_back(physical(values[i]));
        }
    }
    metric_list metrics(const evaluation& e) const {
        metric_list all{{"times_better_than_mean", 0}};
        const double n = static_cast<double>(std::max<index_t>(e.count, 1));
        double unexplained = 0;
        for (std::size_t k = 0; k < e.truth.size(); ++k) {
            double mean = 0, total = 0, residual = 0, absolute = 0;
            for (double t : e.truth[k]) mean += t / n;
            for (std::size_t i = 0; i < e.truth[k].size(); ++i) {
                const double t = e.truth[k][i], error = e.predicted[k][i] - t;
                total += (t - mean) * (t - mean);
                residual += error * error;
                absolute += std::abs(error);
            }
            all.emplace_back("r2_" + info.names[k], total > 0 ? 1 - residual / total : 0);
            all.emplace_back("rmse_" + info.names[k], std::sqrt(residual / n));
            all.emplace_back("mae_" + info.names[k], absolute / n);
            unexplained += total > 0 ? residual / total / static_cast<double>(e.truth.size()) : 0;
        }
        if (unexplained > 0) all[0].second = 1 / unexplained;
        return all;
    }
};

}  // namespace cairn
