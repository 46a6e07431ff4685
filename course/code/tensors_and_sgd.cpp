// Code of course/lectures/01-tensors-and-sgd.md. Prints what the page says.

#include <cairn/core/arena.hpp>
#include <cairn/core/xt.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/optim/sgd.hpp>

#include <cmath>
#include <cstdint>
#include <cstdio>

using namespace cairn;

// --8<-- [start:descend]
/// Steps until both parameters of f = (θ₀² + 100 θ₁²) / 2 are below 0.001, from (1, 1).
int steps_to_the_bottom(double lr, double momentum) {
    const sgd_rule<double> rule{.lr = lr, .momentum = momentum, .l2 = 0, .shrink = 0, .nesterov = false};
    const double curvature[] = {1, 100};
    double theta[] = {1, 1}, velocity[] = {0, 0};
    int steps = 0;
    for (; std::abs(theta[0]) > 1e-3 || std::abs(theta[1]) > 1e-3; ++steps)
        for (int i = 0; i < 2; ++i) rule(theta[i], curvature[i] * theta[i], velocity[i]);
    return steps;
}
// --8<-- [end:descend]

int main() {
    {
        // --8<-- [start:strides]
        auto t = tensor<float>::zeros({2, 3, 5});     // strides 15, 5, 1
        t(1, 2, 4) = 7;                               // place 1 · 15 + 2 · 5 + 4
        std::printf("t[29] is %g\n", double(t[29]));  // 7
        const auto flat = t.reshaped({6, 5});         // the same memory under another shape: nothing moves
        std::printf("flat(5, 4) is %g\n", double(flat(5, 4)));
        // --8<-- [end:strides]
        require(t[29] == 7 && flat(5, 4) == 7, "not row-major");
    }
    {
        // --8<-- [start:lazy]
        xt::xtensor<float, 2> x = xt::ones<float>({100, 10});
        int looks = 0;
        const auto watched = xt::make_lambda_xfunction([&](float v) { return ++looks, v; }, x);  // x, and counts
        xt::xtensor<float, 2> y = watched / xt::amax(watched, {0});  // a column's maximum again for each element
        std::printf("one expression: %d elements read\n", looks);    // 101,000
        looks = 0;
        const xt::xtensor<float, 1> largest = xt::amax(watched, {0});  // computed here …
        y = watched / largest;                                         // … and only used here
        std::printf("two: %d\n", looks);                               // 2,000
        // --8<-- [end:lazy]
        require(looks == 2000, "xtensor looks ", looks, " times");
    }
    {
        // --8<-- [start:intensity]
        for (const cairn::index_t batch : {1, 16, 256, 4096}) {
            const phase_cost forward = linear<float>({.in = 1024, .out = 1024}).cost({batch, 1024}).forward;
            std::printf("batch %4td: %6.1f Mflop, %5.1f MB, %6.1f flop a byte\n", batch, forward.flops / 1e6,
                        forward.bytes / 1e6, forward.flops / forward.bytes);
        }
        // --8<-- [end:intensity]
    }
    {
        // --8<-- [start:check]
        sequential<double> net;
        net.add("hidden", linear<double>({.in = 4, .out = 8}));
        net.add("relu", activation_layer<double>(activation::relu));
        net.add("out", linear<double>({.in = 8, .out = 3}));
        arena<double> weights(net.parameters(), 1);  // parameters in one block, gradients in another
        tensor<double> x({5, 4});
        tensor<std::int32_t> labels({5});
        const random_stream random{.seed = 1};
        for (cairn::index_t i = 0; i < x.size(); ++i) x[i] = random.normal(std::uint64_t(i));
        for (cairn::index_t i = 0; i < 5; ++i) labels[i] = static_cast<std::int32_t>(i % 3);

        saved_tensors<double> saved;
        auto [loss, dy] = cross_entropy{}(net.forward(x.clone(), saved, {}), labels);
        net.backward(std::move(dy), saved, {});  // all gradients in one sweep

        const auto loss_at = [&] {
            return cross_entropy{}(net.forward(x.clone(), saved, {.mode = mode::evaluate}), labels).value;
        };
        double worst = 0;
        for (const auto& w : weights.parameters())
            for (cairn::index_t i = 0; i < w.p->value.size(); ++i) {  // two sweeps for each parameter
                double& theta = w.p->value[i];
                const double before = theta, h = std::cbrt(0x1p-52) * std::max(1.0, std::abs(before));
                theta = before + h;
                const double above = loss_at();
                theta = before - h;
                const double below = loss_at();
                theta = before;
                worst = std::max(worst, std::abs((above - below) / (2 * h) - w.p->grad[i]));
            }
        std::printf("loss %.3f; largest difference to the numerical gradient %.0e\n", loss, worst);
        // --8<-- [end:check]
        require(worst < 1e-9, "the gradients differ by ", worst);
    }
    {
        // --8<-- [start:momentum]
        std::printf("without momentum %d steps, with it %d\n", steps_to_the_bottom(2.0 / 101, 0),
                    steps_to_the_bottom(4.0 / 121, 81.0 / 121));
        // --8<-- [end:momentum]
        require(steps_to_the_bottom(4.0 / 121, 81.0 / 121) < 100, "momentum does not help");
    }
}
