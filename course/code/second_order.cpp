// Code of course/lectures/04-kfac.md: descent on a quadratic, K-FAC on a small autoencoder, who sends what on eight
// ranks.

#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/kfac_assignment.hpp>
#include <cairn/optim/sgd.hpp>

#include <cmath>
#include <cstdio>

using namespace cairn;

namespace {

// --8<-- [start:quadratic]
/// Steps of gradient descent on ½ (κ x² + y²) from (1, 1), with the best learning rate there is, until both are below
/// 10⁻⁶.
int steps_of_descent(double condition) {
    double x = 1, y = 1;
    const double lr = 2 / (condition + 1);
    int steps = 0;
    for (; std::abs(x) > 1e-6 || std::abs(y) > 1e-6; ++steps) {
        x -= lr * condition * x;
        y -= lr * y;
    }
    return steps;
}
// --8<-- [end:quadratic]

/// 128 examples near a surface of two dimensions, whose columns differ in size by a factor of 30.
tensor<float> examples() {
    const random_stream random{1, 1, 0};
    tensor<float> x({128, 12});
    for (cairn::index_t i = 0; i < 128; ++i)
        for (cairn::index_t c = 0; c < 12; ++c) {
            double sum = 0;
            for (cairn::index_t k = 0; k < 2; ++k)
                sum += random.normal(static_cast<std::uint64_t>(i * 2 + k)) *
                       random.normal(static_cast<std::uint64_t>(1000 + k * 12 + c));
            const double size = std::pow(30, -static_cast<double>(c) / 11);
            const double noise = random.normal(static_cast<std::uint64_t>(2000 + i * 12 + c));
            x(i, c) = static_cast<float>(size * (1.5 * std::tanh(sum / std::sqrt(2)) + 0.02 * noise));
        }
    return x;
}

// --8<-- [start:train]
/// The loss of a deep autoencoder after so many steps on all examples: SGD with momentum, or K-FAC.
double train(const tensor<float>& x, int steps, bool second_order, double lr) {
    sequential<float> net;
    const cairn::index_t widths[] = {12, 8, 4, 8, 12};
    for (int l = 0; l < 4; ++l) {
        net.add(concat("linear", l), linear<float>({.in = widths[l], .out = widths[l + 1]}));
        if (l < 3) net.add(concat("tanh", l), activation_layer<float>(activation::tanh));
    }
    arena<float> weights(net.parameters(), 1);
    bound_optimizer optimizer(sgd{{.momentum = second_order ? 0.0 : 0.9}}, weights);
    kfac<float> curvature(weights, {.damping = 1e-4,
                                    .factor_update_interval = 1,
                                    .inverse_update_interval = 1,
                                    .kl_clip = 0.02,
                                    .form = kfac_form::eigen});
    saved_tensors<float> saved;
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
        const auto at = static_cast<std::uint32_t>(step);
        // a pass for A and G alone, with targets that the network draws: y + σε is what the loss takes them for
        if (second_order) {
            pass_context statistics{.random = {.step = at}, .weight_gradient = false};
            statistics.curvature = curvature.begin_step();  // layers tell it their rows
            const tensor<float> y = net.forward(x.clone(), saved, statistics);
            tensor<float> drawn = y.clone();
            const random_stream random{1, 2, at};
            for (cairn::index_t i = 0; i < drawn.size(); ++i)
                drawn[i] += std::sqrt(6.0f) * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
            auto [value, dy] = mean_squared{}(y.clone(), drawn);
            net.backward(std::move(dy), saved, statistics);
        }
        const pass_context p{.random = {.step = at}};
        auto [value, dy] = mean_squared{}(net.forward(x.clone(), saved, p), x);
        weights.zero_grad();
        net.backward(std::move(dy), saved, p);
        if (second_order) curvature.precondition(static_cast<double>(x.extent(0)), lr);  // gradients ← F⁻¹ gradients
        optimizer.step(lr);
        loss = value;
    }
    return loss;
}
// --8<-- [end:train]

}  // namespace

int main() {
    for (const double condition : {1.0, 10.0, 100.0, 1000.0})
        std::printf("condition %4.0f: %d steps\n", condition, steps_of_descent(condition));

    const tensor<float> x = examples();
    double first = 1e300;
    for (const double lr : {0.2, 0.4, 0.8, 1.6}) {
        const double loss = train(x, 600, false, lr);
        std::printf("SGD, lr %.2f: loss %.5f after 600 steps\n", lr, loss);
        if (loss < first) first = loss;
    }
    const double second = train(x, 200, true, 0.2);
    std::printf("K-FAC: loss %.5f after 200 steps\n", second);

    // --8<-- [start:assignment]
    std::vector<factor_sizes> layers;
    for (const auto& [in, out] : {std::pair{784, 1000}, {1000, 500}, {500, 250}, {250, 30}})
        layers.push_back({.a = in + 1, .g = out});
    for (const double fraction : {1.0, 0.5, 0.25, 0.125}) {
        const kfac_assignment where(8, layers, {.grad_worker_fraction = fraction});
        std::printf("fraction %.3f: %d x %d ranks;", fraction, where.rows(), where.columns());
        for (const layer_place& l : where.layers()) std::printf("  column %d, rank %d", l.column, l.a_worker);
        std::printf("\n");
    }
    // --8<-- [end:assignment]
    return second < first ? 0 : 1;
}
