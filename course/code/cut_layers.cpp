// Code of course/lectures/07-cut-layers.md. Runs on ranks that are threads; checks and prints what the page says.

#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/parallel/spatial/partition.hpp>
#include <cairn/parallel/tensor/column_linear.hpp>
#include <cairn/parallel/tensor/row_linear.hpp>

#include <cmath>
#include <cstdio>

using namespace cairn;
using cairn::index_t;

/// Bytes that rank 0 sends for a pair of linear layers, forward and backward, and a number of its result.
void pair() {
    double alone = 0;
    for (const int p : {1, 2, 4})
        run_ranks(p, [&](threads_communicator& world) {
            // --8<-- [start:pair]
            counting_communicator counting(world.split(0, world.rank()));
            channel over(counting);
            tensor_axis axis(over, {.algorithm = all_reduce_algorithm::ring});
            using ranks = counting_communicator<threads_communicator>;
            sequential<double> net;
            net.add("first", column_linear<ranks, double>(axis, {.whole = {.in = 64, .out = 256}}));
            net.add("gelu", gelu<double>());
            net.add("second", row_linear<ranks, double>(axis, {.whole = {.in = 256, .out = 64}}));
            arena<double> weights(net.parameters(), 1);  // the numbers that one rank would draw, each where it belongs

            saved_tensors<double> saved;
            const auto x = tensor<double>::filled({32, 64}, 1.0);  // n = 32 · 64 · 8 bytes = 16 kB
            const auto y = net.forward(x.clone(), saved, {});
            const std::int64_t forward = counting.counts().bytes;
            net.backward(y.clone(), saved, {});
            if (world.rank() == 0)
                std::printf("%d ranks: %td parameters each, %5lld bytes sent in forward, %5lld in all\n", p,
                            weights.values().size(), static_cast<long long>(forward),
                            static_cast<long long>(counting.counts().bytes));
            // --8<-- [end:pair]
            const std::int64_t expected = 2 * (p - 1) * 32 * 64 * 8 / p;
            require(forward == expected && counting.counts().bytes == 2 * expected, "rank ", world.rank(), ": ",
                    counting.counts());
            if (p == 1) alone = y[0];
            require(std::abs(y[0] - alone) < 1e-12, p, " ranks: ", y[0], ", one: ", alone);
        });
}

/// Halos of a volume by the grid of ranks.
void halos() {
    // --8<-- [start:halos]
    const axis_window window{.kernel = 3, .stride = 1, .pad = 1};
    for (const std::vector<int>& extents : {std::vector{8, 1, 1}, std::vector{4, 2, 1}, std::vector{2, 2, 2}}) {
        std::vector<std::vector<axis_halo>> along;
        for (const int ranks : extents)
            along.push_back(axis_halos(shards_of(128, ranks), shards_of(128, ranks), window, "conv", "axis"));
        index_t most = 0;  // of the rank that sends most
        for (const axis_halo& d : along[0])
            for (const axis_halo& h : along[1])
                for (const axis_halo& w : along[2]) most = std::max(most, halo_elements({d, h, w}, 1, 16));
        std::printf("%d x %d x %d: %.2f MB\n", extents[0], extents[1], extents[2], 4e-6 * double(most));
    }
    // --8<-- [end:halos]
    const auto cube = axis_halos(shards_of(128, 2), shards_of(128, 2), window, "conv", "axis")[0];
    require(halo_elements({cube, cube, cube}, 1, 16) == 16 * (64 * 64 + 66 * 64 + 66 * 66), "a cube's halo");
}

int main() {
    pair();
    halos();
}
