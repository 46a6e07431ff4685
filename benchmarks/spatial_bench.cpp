// Cost of halo exchanges: the convolutions and poolings of CosmoFlow on one volume that ranks share, compared with
// ranks that each train on a volume of their shard's size and exchange nothing. Ranks are threads, of one thread each.
//   spatial_bench --size 128 --grid 2 1 1

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/core/clock.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/parallel/replicas.hpp>
#include <cairn/parallel/spatial/parts.hpp>

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace cairn;
using cairn::index_t;

struct settings {
    index_t size = 128, batch = 1, filters = 16;
    int blocks = 5, steps = 3;
    std::vector<int> grid{2, 1, 1};
};

// Forward and backward of the layers in front of `flatten`.
void step(sequential<float>& net, const tensor<float>& x) {
    int end = 0;
    while (net.name(end) != "flatten") ++end;
    saved_tensors<float> saved;
    const pass_context pass{.input_gradient = false};
    const tensor<float> y = net.forward_until(end, x.clone(), saved, pass);
    tensor<float> dy = tensor<float>::filled(y.shape(), 1e-3f);
    for (int i = end; i-- > 0;) dy = net.backward_of(i, std::move(dy), saved, pass);
}

// Seconds of a step, the slowest rank's: median of the steps behind the first, which chooses kernels.
double seconds(threads_communicator& c, sequential<float>& net, const tensor<float>& x, int steps) {
    arena<float> weights(net.parameters(), 1);
    std::vector<double> all;
    for (int s = -1; s < steps; ++s) {
        barrier(c);
        const stopwatch watch;
        step(net, x);
        double took = watch.seconds();
        all_reduce(c, std::span(&took, 1), {.op = reduction::max});
        if (s >= 0) all.push_back(took);
    }
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
}

void measure(const settings& s) {
    const rank_grid grid(s.grid);
    const cosmoflow_config config{.size = s.size, .filters = s.filters, .blocks = s.blocks};
    std::array<double, 2> took{};  // alone, together
    run_ranks(grid.size(), {.kernel_threads = 1}, [&](threads_communicator& c) {
        channel over(c);
        spatial_parts<threads_communicator> parts(over, grid, {s.size, s.size, s.size});
        const shape here = parts.cut().tensor_shape(grid, c.rank(), s.batch, config.channels);
        tensor<float> x(here);
        const random_stream random{1, static_cast<std::uint32_t>(c.rank()), 0};
        for (index_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
        for (int together = 0; together < 2; ++together) {
            auto net = together ? cosmoflow<float, cpu>(config, parts) : cosmoflow<float>(config);
            const double t = seconds(c, net, x, s.steps);
            if (c.rank() == 0) took[static_cast<std::size_t>(together)] = t;
            barrier(c);
            if (together == 0) continue;
            trace::global().enable(true);  // one more step, for what it consists of
            step(net, x);
            barrier(c);
            trace::global().enable(false);
        }
    });
    double copies = 0, waits = 0;
    for (const trace_event& e : trace::global().events()) {
        if (e.path.find("copy halo") != std::string::npos) copies += e.end - e.begin;
        if (e.path.find("wait for halo") != std::string::npos) waits += e.end - e.begin;
    }
    fmt::print("{}³ on {} ranks, batch {}: {:.3f} s alone, {:.3f} s with halos: {:.3f} of the speed\n", s.size,
               grid.text(), s.batch, took[0], took[1], took[0] / took[1]);
    fmt::print("of a rank's step: copies {:.4f} s, waits for neighbours {:.4f} s ({:.1f} %)\n", copies / grid.size(),
               waits / grid.size(), 100 * waits / grid.size() / took[1]);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"Time of halo exchanges of CosmoFlow's convolutions over ranks that are threads"};
    settings s;
    app.add_option("--size", s.size, "side of the volume")->check(CLI::PositiveNumber);
    app.add_option("--batch", s.batch, "volumes")->check(CLI::PositiveNumber);
    app.add_option("--filters", s.filters, "of the first block")->check(CLI::PositiveNumber);
    app.add_option("--blocks", s.blocks, "convolutions with pooling")->check(CLI::Range(1, 10));
    app.add_option("--grid", s.grid, "ranks along depth, height, width")->expected(3);
    app.add_option("--steps", s.steps, "timed steps")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    try {
        measure(s);
    } catch (const cairn::error& e) {
        std::cerr << "spatial_bench: " << e.what() << '\n';
        return 1;
    }
}
