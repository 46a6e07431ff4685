// Code of course/lectures/04-kfac.md: descent on a quadratic, K-FAC on a small autoencoder, who sends what on eight ranks.

#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/precondition/placement.hpp>
#include <cairn/optim/sgd.hpp>

#include <cmath>
#include <cstdio>

using namespace cairn;

namespace {

// --8<-- [start:quadratic]
/// Steps of gradient descent on ½ (κ x² + y²) from (1, 1), with the best learning rate there is, until both are below 10⁻⁶.
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

/// Examples near a surface of three dimensions, whose columns differ in size by a factor of ten.
tensor<float> examples() {
    const random_stream random{1, 1, 0};
    tensor<float> x({256, 12});
    for (cairn::index i = 0; i < 256; ++i)
        for (cairn::index c = 0; c < 12; ++c) {
            double sum = 0;
            for (cairn::index k = 0; k < 3; ++k)
                sum += random.normal(std::uint64_t(i * 3 + k)) * random.normal(std::uint64_t(10000 + k * 12 + c));
            x(i, c) = static_cast<float>(1.5 * std::tanh(sum / 1.7) * std::pow(10, -double(c) / 11));
        }
    return x;
}

// --8<-- [start:train]
/// The loss of an autoencoder after so many steps on all examples, with SGD, or with K-FAC in front of it.
double train(int steps, bool second_order, double lr) {
    sequential<float> net;
    net.add("encode", linear<float>({.in = 12, .out = 8}));
    net.add("tanh1", activation_layer<float>(activation::tanh));
    net.add("code", linear<float>({.in = 8, .out = 3}));
    net.add("tanh2", activation_layer<float>(activation::tanh));
    net.add("decode", linear<float>({.in = 3, .out = 8}));
    net.add("tanh3", activation_layer<float>(activation::tanh));
    net.add("out", linear<float>({.in = 8, .out = 12}));
    arena<float> weights(net.params(), 1);
    optimizer_over optimizer(sgd{{.momentum = 0.9}}, weights);
    kfac<float> curvature(weights, {.damping = 1e-4, .factor_every = 1, .decompose_every = 5, .kl_clip = 1e-2});
    const tensor<float> x = examples();
    tape<float> saved;
    double loss = 0;
    for (int step = 0; step < steps; ++step) {
        pass p{.step = static_cast<std::uint32_t>(step)};
        if (second_order) p.curvature = curvature.begin_step();  // layers will tell it their rows
        auto [value, dy] = mean_squared{}(net.forward(x.clone(), saved, p), x);
        weights.zero_grad();
        net.backward(std::move(dy), saved, p);
        if (second_order) curvature.precondition(256, lr);  // gradients ← F⁻¹ gradients
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

    const double first = train(200, false, 0.3), second = train(200, true, 0.1);
    std::printf("200 steps: SGD %.5f, K-FAC %.5f\n", first, second);

    // --8<-- [start:placement]
    std::vector<factor_sizes> layers;
    for (const auto& [in, out] : {std::pair{784, 1000}, {1000, 500}, {500, 250}, {250, 30}})
        layers.push_back({.a = in + 1, .g = out});
    for (const double fraction : {1.0, 0.5, 0.25, 0.125}) {
        const placement where(8, layers, {.grad_worker_fraction = fraction});
        std::printf("fraction %.3f: %d x %d ranks;", fraction, where.rows(), where.columns());
        for (const layer_place& l : where.layers()) std::printf("  column %d, rank %d", l.column, l.a_worker);
        std::printf("\n");
    }
    // --8<-- [end:placement]
    return second < first ? 0 : 1;
}
