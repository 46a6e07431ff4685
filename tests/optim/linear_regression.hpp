#pragma once
// A linear network under a squared loss of random rows: the loss is quadratic in the weights.

#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/quadratic_step.hpp>

#include <span>
#include <utility>

namespace cairn {

class linear_regression {
    auto of(tensor<float> y) const { return mean_squared{}(std::move(y), target_); }

public:
    linear_regression(const linear<float>::config& c, index_t rows)
        : net(layers(c)), weights(net.parameters(), 2), x({rows, c.in}), target_({rows, c.out}) {
        const random_stream random{4, 1, 0};
        for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
        for (index_t i = 0; i < target_.size(); ++i)
            target_[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(1000 + i)));
    }

    /// The loss; gradients in `weights`, and statistics in `curvature` unless that is null.
    double backward(kfac<float>* curvature) {
        weights.zero_grad();
        pass_context p;
        if (curvature) p.curvature = curvature->begin_step();
        saved_tensors<float> saved;
        auto [value, dy] = of(net.forward(x.share(), saved, p));
        net.backward(std::move(dy), saved, p);
        return value;
    }

    double loss() { return of(output()).value; }

    /// One step after backward(), which gave `value`. Returns the change that the model predicts.
    double take(quadratic_step<cpu>& step, double value) {
        return step.take(
            static_cast<double>(x.extent(0)), value, 1.0, output(), [this](bool) { return output(); },
            [this](tensor<float> y, bool) { return of(std::move(y)); }, [](std::span<double>) {});
    }

    sequential<float> net;
    arena<float> weights;
    tensor<float> x;

private:
    static sequential<float> layers(const linear<float>::config& c) {
        sequential<float> all;
        all.add("linear", linear<float>(c));
        return all;
    }
    tensor<float> output() {
        saved_tensors<float> scratch;
        return net.forward(x.share(), scratch, {.repeated = true});
    }

    tensor<float> target_;
};

}  // namespace cairn
