// Code of course/admm.md: a network trained without a gradient through it, layer by layer.

#include <cairn/admm/dladmm.hpp>
#include <cairn/admm/pdadmm.hpp>
#include <cairn/admm/split_chain.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/models/mlp.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>

using namespace cairn;

namespace {

// --8<-- [start:problem]
// Points of the plane in three rings: no line separates them.
struct points {
    tensor<double> x{{300, 2}};
    tensor<std::int32_t> labels{{300}};

    points() {
        const random_stream random{1, 1, 0};
        for (index_t i = 0; i < 300; ++i) {
            labels[i] = static_cast<std::int32_t>(i % 3);
            const double radius = labels[i] + 0.6 + 0.3 * random.uniform(static_cast<std::uint64_t>(2 * i)),
                         angle = 6.2832 * random.uniform(static_cast<std::uint64_t>(2 * i + 1));
            x[2 * i] = radius * std::cos(angle);
            x[2 * i + 1] = radius * std::sin(angle);
        }
    }
};
// --8<-- [end:problem]

double accuracy(sequential<double>& net, const points& p) {
    saved_tensors<double> nothing;
    const tensor<double> y = net.forward(p.x.clone(), nothing, {.mode = mode::evaluate});
    index_t right = 0;
    for (index_t i = 0; i < 300; ++i)
        right += std::max_element(y.data() + 3 * i, y.data() + 3 * i + 3) - (y.data() + 3 * i) == p.labels[i];
    return static_cast<double>(right) / 300;
}

}  // namespace

int main() {
    const points p;
    // --8<-- [start:train]
    sequential<double> net = mlp<double>({2, 32, 32, 3});
    arena<double> weights(net.parameters(), 3);
    // The layers of the network, each with its weights: what ADMM changes is the network itself.
    admm::pdadmm<double> algorithm(admm::split_chain(net, {1, 2}, "pdadmm"), {.rho = 4e-2, .nu = 1e-2, .mu = 1e-5},
                                   p.x.clone(), {p.labels.share(), {}});
    for (int i = 1; i <= 60; ++i) {
        const admm::objective_terms now = algorithm.iterate();  // all layers, at the same time
        if (i % 20 == 0)
            std::printf("iteration %d: objective %.2f, |p - q|^2 / |q|^2 %.1e, accuracy %.3f\n", i, now.total(),
                        now.residual, accuracy(net, p));
    }
    // --8<-- [end:train]
    return accuracy(net, p) > 0.8 ? 0 : 1;
}
