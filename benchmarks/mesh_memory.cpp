// Training that does not fit one rank: CosmoFlow under a limit of memory, on one rank, which ends with an error, and on
// meshes of ranks that are threads, each within the limit; losses compared with those of one rank without a limit. Each
// mesh trains in two starts, the second of which goes on from the state that the first has saved within the limit.
//   mesh_memory --size 128 --limit 160

#include "cosmoflow_mesh.hpp"

#include <cairn/device/autotune.hpp>

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <unistd.h>

namespace {

using namespace cairn;
using namespace cairn::cosmoflow_mesh;

void print(const std::string& name, const outcome& o, double apart) {
    fmt::print("{:<40}", name);
    for (const double loss : o.losses) fmt::print(" {:.7f}", loss);
    fmt::print("  apart {:.1e}\n", apart);
    fmt::print("{:<40}", "  MB held at most, by rank");
    for (const cairn::index_t bytes : o.peaks) fmt::print(" {:.1f}", static_cast<double>(bytes) / 1e6);
    fmt::print("\n{:<40}", "  of it saved for backward");
    for (const cairn::index_t bytes : o.saved) fmt::print(" {:.1f}", static_cast<double>(bytes) / 1e6);
    fmt::print("\n");
    std::fflush(stdout);
}

// Losses of both starts, the higher peaks.
outcome in_two_starts(settings s) {
    const auto folder = std::filesystem::temp_directory_path() / fmt::format("cairn-mesh-memory-{}", ::getpid());
    std::filesystem::create_directory(folder);
    s.states = folder;
    const int steps = std::exchange(s.steps, s.steps - 1);
    outcome all = train<float>(s);
    s.steps = steps;
    const outcome resumed = train<float>(s);
    std::filesystem::remove_all(folder);
    all.losses.insert(all.losses.end(), resumed.losses.begin(), resumed.losses.end());
    for (std::size_t r = 0; r < all.peaks.size(); ++r) {
        all.peaks[r] = std::max(all.peaks[r], resumed.peaks[r]);
        all.saved[r] = std::max(all.saved[r], resumed.saved[r]);
    }
    return all;
}

// Whether all is as it should be.
bool measure(const settings& s, cairn::index_t limit, double tolerance) {
    fmt::print("CosmoFlow {0}³ x {1}, {2} filters, batch {3} in micro-batches of one sample, {4} steps\n", s.net.size,
               s.net.channels, s.net.filters, s.batch, s.steps);
    const outcome alone = train<float>(s);
    print("one rank, no limit", alone, 0);

    bool well = false;
    settings limited = s;
    limited.memory_limit = limit;
    try {
        train<float>(limited);
        fmt::print("one rank keeps within {} bytes: take a smaller --limit\n", limit);
    } catch (const cairn::error& e) {
        well = std::string(e.what()).find("out of memory") != std::string::npos;
        fmt::print("one rank, {} bytes allowed: {}\n", limit, e.what());
    }
    for (const auto& [pipeline, data, grid] :
         {std::tuple(2, 2, std::vector{2, 1, 1}), std::tuple(1, 1, std::vector{2, 2, 2})}) {
        limited.pipeline = pipeline;
        limited.data = data;
        limited.grid = grid;
        const outcome together = in_two_starts(limited);
        print(limited.mesh(), together, difference(together, alone));
        well &= difference(together, alone) <= tolerance && std::ranges::max(together.peaks) <= limit;
    }
    fmt::print(
        "{}\n",
        well ? "one rank exceeds the limit, 8 ranks keep within it, saving and going on too, with the losses of one"
             : "not as it should be");
    return well;
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"CosmoFlow under a limit of memory that one rank exceeds, on 8 ranks that are threads"};
    settings s{.net = {.size = 128}};
    double limit = 160, tolerance = 1e-5;
    app.add_option("--size", s.net.size, "side of the volume")->check(CLI::PositiveNumber);
    app.add_option("--filters", s.net.filters, "of the first block")->check(CLI::PositiveNumber);
    app.add_option("--blocks", s.net.blocks, "convolutions with pooling")->check(CLI::Range(1, 10));
    app.add_option("--batch", s.batch, "volumes of a step, a multiple of 2")->check(CLI::PositiveNumber);
    app.add_option("--steps", s.steps, "of training, two or more")->check(CLI::Range(2, 1000));
    app.add_option("--limit", limit, "MB (10^6 bytes) that a rank may hold")->check(CLI::PositiveNumber);
    app.add_option("--tolerance", tolerance, "of the losses, relative")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    // Measuring kernels takes memory of its own, which is not what is asked about.
    autotune_cache::global().set_policy(autotune_policy::first);
    try {
        return measure(s, static_cast<cairn::index_t>(limit * 1e6), tolerance) ? 0 : 1;
    } catch (const cairn::error& e) {
        std::cerr << "mesh_memory: " << e.what() << '\n';
        return 2;
    }
}
