// Values at each pixel: figures and gradients by plain loops, with missing pixels and weights.

#include "catch.hpp"

#include <cairn/data/micro_batches.hpp>
#include <cairn/objectives/field_regression.hpp>

#include <limits>

namespace cairn {

TEST_CASE("objective: fields are judged at the pixels that are known, by their weights", "[objectives]") {
    constexpr index_t count = 3, places = 5, variables = 2;
    for (const bool weighted : {false, true}) {
        target_info info{target_kind::values, {"a", "b"}, {3, -1}, {2, 0.5f}};
        info.labels_each = places;
        info.labels = label_place::voxels;
        const random_stream random{1, 2, weighted};
        if (weighted)
            for (std::uint64_t i = 0; i < places * variables; ++i)
                info.weights.push_back(0.5 + static_cast<double>(random.uniform(1000 + i)));
        const any_objective<> goal = field_regression(info);
        batch b;
        b.count = count;
        b.targets = tensor<float>({count, info.values_each()});
        tensor<float> y({count, places, variables});
        for (index_t i = 0; i < y.size(); ++i) {
            y[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
            b.targets[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(100 + i)));
            if (i % 7 == 3) b.targets[i] = std::numeric_limits<float>::quiet_NaN();
        }
        const auto weight = [&](index_t i) {
            return weighted ? info.weights[static_cast<std::size_t>(i % (places * variables))] : 1;
        };
        double loss = 0;
        std::vector<double> r2, relative, rmse;
        for (index_t v = 0; v < variables; ++v) {
            const double scale = static_cast<double>(info.scale[static_cast<std::size_t>(v)]);
            double all = 0, mean = 0, total = 0, error = 0, ratios = 0;
            for (int pass = 0; pass < 2; ++pass)  // the mean, then what deviates from it
                for (index_t n = 0; n < count; ++n) {
                    double wrong = 0, norm = 0;
                    for (index_t p = 0; p < places; ++p) {
                        const index_t i = (n * places + p) * variables + v;
                        if (i % 7 == 3) continue;
                        const double truth = static_cast<double>(info.mean[static_cast<std::size_t>(v)]) +
                                             scale * static_cast<double>(b.targets[i]),
                                     off = static_cast<double>(y[i] - b.targets[i]);
                        if (pass == 0) {
                            all += weight(i), mean += weight(i) * truth;
                            loss += weight(i) * off * off / static_cast<double>(y.size());
                            continue;
                        }
                        total += weight(i) * std::pow(truth - mean / all, 2);
                        wrong += weight(i) * std::pow(scale * off, 2);
                        norm += weight(i) * truth * truth;
                    }
                    error += wrong;
                    if (pass == 1) ratios += std::sqrt(wrong / norm) / count;
                }
            r2.push_back(1 - error / total);
            rmse.push_back(std::sqrt(error / all));
            relative.push_back(ratios);
        }
        evaluation e = goal.start();
        goal.add(e, y, device_batch<>(samples_of(b, range{0, count})));
        CHECK(e.loss() == Approx(loss).epsilon(1e-5));
        const metric_list metrics = goal.metrics(e);
        const metric_list expected{{"r2", (r2[0] + r2[1]) / 2},
                                   {"relative_l2", (relative[0] + relative[1]) / 2},
                                   {"rmse_a", rmse[0]},
                                   {"r2_a", r2[0]},
                                   {"relative_l2_a", relative[0]},
                                   {"rmse_b", rmse[1]},
                                   {"r2_b", r2[1]},
                                   {"relative_l2_b", relative[1]}};
        REQUIRE(metrics.size() == expected.size());
        for (std::size_t k = 0; k < expected.size(); ++k) {
            CHECK(metrics[k].first == expected[k].first);
            CHECK(metrics[k].second == Approx(expected[k].second).epsilon(1e-5));
        }

        // Drawn gradients have the Hessian of a sample's loss over y, 2 weight / values, as their mean square.
        constexpr index_t draws = 4000;
        std::vector<double> squares(static_cast<std::size_t>(places * variables));
        for (std::uint32_t draw = 0; draw < draws; ++draw) {
            const tensor<float> g = goal.sampled_gradient(y.clone(), {5, 6, draw}, 2);
            if (draw == 0) CHECK(g.shape() == y.shape());
            for (index_t i = 0; i < g.size(); ++i)
                squares[static_cast<std::size_t>(i % (places * variables))] +=
                    std::pow(count * static_cast<double>(g[i]), 2) / (draws * count);
        }
        for (index_t i = 0; i < places * variables; ++i)
            CHECK(squares[static_cast<std::size_t>(i)] == Approx(2 * weight(i) / (places * variables)).epsilon(0.06));

        // The gradient, by differences in double; the value of a batch is the mean of its parts.
        const known_mean_squared in_double{{.outputs = info.weights}};
        tensor<double> x({count, places * variables}), t(x.shape());
        for (index_t i = 0; i < x.size(); ++i)
            x[i] = static_cast<double>(y[i]), t[i] = static_cast<double>(b.targets[i]);
        const tensor<double> gradient = in_double(x.clone(), t).gradient;
        const tensor<float> of_goal = goal.loss(y.clone(), samples_on<cpu>(b)).gradient;
        CHECK(of_goal.shape() == y.shape());
        for (index_t i = 0; i < x.size(); ++i) {
            const auto value = [&](double h) {
                tensor<double> moved = x.clone();
                moved[i] += h;
                return static_cast<double>(in_double(std::move(moved), t).value);
            };
            CHECK(gradient[i] == Approx((value(1e-6) - value(-1e-6)) / 2e-6).margin(1e-8));
            CHECK(static_cast<double>(of_goal[i]) == Approx(gradient[i]).epsilon(1e-5).margin(1e-7));
        }
    }
}

}  // namespace cairn
