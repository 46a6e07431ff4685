#include <cairn/cairn.hpp>
#include <cairn/data/cosmology.hpp>
#include <cairn/data/loader.hpp>

#include <cstdio>

int main() {
    cairn::cosmology_volumes universes({.count = 256, .grid = 16});  // simulated here and now, no download
    cairn::loader batches(universes, {.batch = 16, .seed = 1});
    auto net = cairn::cosmoflow({.size = 16, .channels = 1, .filters = 8, .blocks = 3, .dropout = 0});
    cairn::arena weights(net.parameters(), 1);  // one block for parameters, one for gradients; seed 1
    cairn::bound_optimizer optimizer(cairn::sgd{{.momentum = 0.9}}, weights);
    cairn::saved_tensors<float> saved;  // what forward leaves for backward
    for (int epoch = 1; epoch <= 10; ++epoch) {
        double sum = 0;
        while (auto batch = batches.next()) {
            const cairn::pass_context context{.random = {.step = static_cast<std::uint32_t>(optimizer.steps())}};
            auto prediction = net.forward(std::move(batch->x), saved, context);
            auto [loss, gradient] = cairn::mean_squared{}(std::move(prediction), batch->targets);
            weights.zero_grad();
            net.backward(std::move(gradient), saved, context);
            optimizer.step(0.02);
            sum += loss;
        }
        std::printf("epoch %d: mean squared error %.3f of the variance\n", epoch, sum / 16);
    }
}
