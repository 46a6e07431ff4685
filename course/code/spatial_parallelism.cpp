// Code of course/spatial-parallelism.md. Runs on ranks that are threads; checks and prints what the page says.

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/parallel/replicas.hpp>
#include <cairn/parallel/spatial/parts.hpp>

#include <cmath>
#include <cstdio>

using namespace cairn;
using cairn::index_t;

// Which rows a rank needs.
void rows() {
    // --8<-- [start:rows]
    const axis_window window{.kernel = 3, .stride = 2, .pad = 1};
    const axis_shards in = shards_of(16, 2), out = shards_of(8, 2);
    for (const axis_halo& h : axis_halos(in, out, window, "conv", "height"))
        std::printf("owns %td to %td, needs %td to %td, takes %td rows from below and %td from above\n", h.own.begin,
                    h.own.end() - 1, h.need.begin, h.need.end() - 1, h.take[0].count, h.take[1].count);
    // --8<-- [end:rows]
    const auto halos = axis_halos(in, out, window, "conv", "height");
    require(halos[0].need.begin == -1 && halos[0].need.end() == 8 && halos[1].need.begin == 7 &&
                halos[1].need.end() == 16 && halos[1].take[0].count == 1 && halos[0].take[1].count == 0,
            "the rows on the page are others");
}

// One convolution on a grid of ranks, and what it sends.
void layer() {
    // --8<-- [start:layer]
    run_ranks(4, [](threads_communicator& world) {
        counting_communicator counting(world.split(0, world.rank()));
        channel over(counting);
        const rank_grid grid({2, 2});
        const auto cut = spatial_partition::even(grid, {32, 32}, "the image");
        const spatial_layers<counting_communicator<threads_communicator>> make{&over, grid};
        auto conv = make.convolution({.in = 8, .out = 8, .kernel = 3, .pad = 1}, cut, cut);

        arena<float> weights(conv.parameters(), 1);  // every rank has all weights
        saved_tensors<float> saved;
        auto x = tensor<float>::filled(cut.tensor_shape(grid, over.rank(), 1, 8), 1.0f);  // (1, 16, 16, 8)
        over.device.reset();
        auto y = conv.forward(std::move(x), saved, {});
        if (over.rank() == 0) std::printf("%td bytes\n", static_cast<index_t>(over.device.counts().bytes));
        // --8<-- [end:layer]
        require(over.device.counts().bytes == (16 + 18) * 8 * 4 && y.shape() == shape{1, 16, 16, 8}, "rank ",
                over.rank(), ": ", over.device.counts());
    });
}

// A step of CosmoFlow on one volume that two ranks share; returns its loss.
double together(const cosmoflow_config& config, int ranks) {
    double loss = 0;
    run_ranks(ranks, [&](threads_communicator& world) {
        // --8<-- [start:network]
        channel over(world);
        group_over group(world.split(0, world.rank()));  // batch norm: statistics of all ranks
        spatial_parts<threads_communicator> parts(over, rank_grid({world.size(), 1, 1}), {16, 16, 16});
        const auto cut = parts.cut();
        auto net = cosmoflow<float, cpu>(config, parts);

        tensor<float> whole({4, 16, 16, 16, 1}), targets = tensor<float>::filled({4, 3}, 0.5f);
        for (index_t i = 0; i < whole.size(); ++i) whole[i] = std::sin(static_cast<float>(i));
        tensor<float> x = own_rows(whole, cut, parts.grid(), world.rank());  // or read_box() of a file

        arena<float> weights(net.parameters(), 1);
        saved_tensors<float> saved;
        const pass_context pass{.random = {.samples = 4}, .input_gradient = false, .group = &group};
        auto prediction = net.forward(std::move(x), saved, pass);  // of this rank's share of the samples
        const auto [samples, weight] = share_of_samples(4, world.size(), world.rank());
        auto [mean, gradient] =
            mean_squared{}(std::move(prediction), targets.slice(samples.begin * 3, {samples.count, 3}).clone());
        for_each(functors::times<float>{static_cast<float>(weight)}, gradient);
        net.backward(std::move(gradient), saved, pass);
        all_reduce(world, weights.grads().span());  // as with data parallelism
        // --8<-- [end:network]
        double sum = mean * weight;
        all_reduce(world, std::span(&sum, 1));
        if (world.rank() == 0) loss = sum;
    });
    return loss;
}

int main() {
    rows();
    layer();
    const cosmoflow_config config{
        .size = 16, .channels = 1, .filters = 4, .blocks = 2, .dense = {16}, .normalise = true};
    const double one = together(config, 1), two = together(config, 2);
    std::printf("loss on 1 rank %.6f, on 2 ranks %.6f\n", one, two);
    require(std::abs(one - two) < 1e-5 * one, "losses ", one, " and ", two);
}
