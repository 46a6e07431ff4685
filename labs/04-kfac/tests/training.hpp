#pragma once
// A deep autoencoder 12-8-4-8-12 on 128 examples that lie near a surface of two dimensions and whose columns differ in
// size by a factor of 30: the kind of problem on which gradient descent is slow.

#include "network.hpp"

#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace lab {

/// The loss that a training ended with, and the steps that it took.
struct run {
    double loss = 0;
    int steps = 0;
};

class problem {
public:
    problem() : x_(128, 12) {
        const auto hidden = normals(128 * 2, 1), mix = normals(2 * 12, 2), noise = normals(128 * 12, 3);
        for (std::size_t i = 0; i < 128; ++i)
            for (std::size_t c = 0; c < 12; ++c) {
                double sum = 0;
                for (std::size_t k = 0; k < 2; ++k) sum += hidden[i * 2 + k] * mix[k * 12 + c];
                const double size = std::pow(30, -static_cast<double>(c) / 11);
                x_(i, c) = size * (1.5 * std::tanh(sum / std::sqrt(2)) + 0.02 * noise[i * 12 + c]);
            }
    }

    /// SGD with momentum 0.9: the best of several learning rates after so many steps.
    run tuned_sgd(int steps) const {
        run best{std::numeric_limits<double>::infinity(), steps};
        for (const double lr : {0.03, 0.06, 0.12, 0.25, 0.5, 1.0}) {
            network net = start();
            std::vector<matrix> momentum;
            for (const matrix& w : net.weights) momentum.emplace_back(w.rows, w.cols);
            for (int step = 0; step < steps; ++step) {
                const auto values = net.forward(x_);
                const auto rows = net.backward(values, loss_gradient(values.back(), x_));
                for (std::size_t l = 0; l < rows.size(); ++l) {
                    matrix &m = momentum[l], &w = net.weights[l];
                    for (double& v : m.values) v *= 0.9;
                    for (std::size_t i = 0; i < rows[l].x.rows; ++i)
                        for (std::size_t o = 0; o < m.rows; ++o) {
                            for (std::size_t c = 0; c < rows[l].x.cols; ++c)
                                m(o, column_of_input(c)) += rows[l].dy(i, o) * rows[l].x(i, c);
                            m(o, column_of_bias(rows[l].x.cols)) += rows[l].dy(i, o);
                        }
                    for (std::size_t k = 0; k < w.values.size(); ++k) w.values[k] -= lr * m.values[k];
                }
            }
            const double loss = loss_of(net.forward(x_).back(), x_);
            if (loss < best.loss) best.loss = loss;  // not if it is NaN
        }
        return best;
    }

    /// K-FAC until it is at `target`, for so many steps at most. step(weights, rows, sampled) changes the weights.
    template <class Step>
    run kfac(Step&& step, int most, double target) const {
        network net = start();
        run now;
        for (now.steps = 0;; ++now.steps) {
            const auto values = net.forward(x_);
            now.loss = loss_of(values.back(), x_);
            if (!(now.loss > target) || now.steps == most) return now;
            const auto rows = net.backward(values, loss_gradient(values.back(), x_));
            const auto sampled =
                net.backward(values, sampled_gradient(values.back(), 5, static_cast<std::uint32_t>(now.steps)));
            step(net.weights, rows, sampled);
        }
    }

private:
    static network start() { return {{12, 8, 4, 8, 12}, 10}; }

    matrix x_;
};

}  // namespace lab
