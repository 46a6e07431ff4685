#pragma once
// CosmoFlow on pipeline × data × spatial ranks that are threads, each with a memory of its own, or on one rank: the
// losses of some steps of SGD, and what each rank held. Micro-batches are of one sample, on one rank too; samples are
// drawn by the position in the whole volume, so that a rank draws the rows that it owns. With a directory of states, a
// version follows the last step, and training goes on from the newest one.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/threads.hpp>
#include <cairn/core/box.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/optim/sgd.hpp>
#include <cairn/parallel/mesh.hpp>
#include <cairn/parallel/pipeline/balance.hpp>
#include <cairn/parallel/pipeline/cut.hpp>
#include <cairn/parallel/pipeline/execute.hpp>
#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/progress_thread.hpp>
#include <cairn/parallel/spatial/parts.hpp>
#include <cairn/state/flush.hpp>
#include <cairn/state/saved_state.hpp>

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

namespace cairn::cosmoflow_mesh {

struct settings {
    cosmoflow_config net = {};
    index_t batch = 4;  // samples of a step on all ranks together
    int steps = 3;
    double lr = 0.01;
    int pipeline = 1, data = 1;
    std::vector<int> grid{1, 1, 1};  // spatial ranks along depth, height and width
    index_t memory_limit = 0;        // bytes that each rank may hold; 0: no limit of its own
    std::filesystem::path states;    // empty: none are saved

    int ranks() const { return pipeline * data * rank_grid(grid).size(); }
    std::string mesh() const {
        return concat("pipeline ", pipeline, " x data ", data, " x spatial ", rank_grid(grid).text());
    }
};

struct outcome {
    std::vector<double> losses;         // by step, of this start
    std::vector<index_t> peaks, saved;  // by rank, bytes: highest of all, and of what forward leaves for backward
};

/// Rows of one volume, from `begin` on; `here`: their shape.
template <class T>
tensor<T> rows_of_volume(index_t sample, const shape& whole, const std::vector<index_t>& begin, const shape& here) {
    tensor<T> x(here, memory_category::data);
    const random_stream random{1, static_cast<std::uint32_t>(sample), 0};
    for_runs(whole, begin, here, [&](index_t in_whole, index_t at, index_t n) {
        for (index_t i = 0; i < n; ++i)
            x[at + i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(in_whole + i)));
    });
    return x;
}

template <class T>
tensor<T> targets_of(index_t sample, index_t outputs) {
    tensor<T> t({1, outputs}, memory_category::data);
    const random_stream random{2, static_cast<std::uint32_t>(sample), 0};
    for (index_t i = 0; i < outputs; ++i) t[i] = static_cast<T>(random.normal(static_cast<std::uint64_t>(i)));
    return t;
}

/// Paths of the layers in front of which the network is cut, by the operations of the whole layers.
template <class T>
std::vector<std::string> cuts_of(const cosmoflow_config& c, int stages) {
    sequential<T> whole = cosmoflow<T>(c);
    const auto units = units_of(whole, shape{1, c.size, c.size, c.size, c.channels});
    std::vector<unit_load> loads;
    for (const model_unit& u : units)
        loads.push_back({u.cost.forward.flops + u.cost.backward_input.flops + u.cost.backward_weight.flops + 1});
    std::vector<std::string> paths;
    for (const int unit : balance(loads, stages)) paths.push_back(units[static_cast<std::size_t>(unit)].path);
    return paths;
}

/// Parameters, which `copies` ranks of this one have alike, and the number of steps done.
template <class T>
state_view state_of(sequential<T>& net, piece_share copies, std::int64_t& steps, bool is_root) {
    state_view state;
    for (const auto& [name, p] : net.parameters())
        state.add("model/" + name, p->value, {.where = {}, .share = copies, .alike = true});
    state.add("steps", steps, {.where = {}, .share = {0, is_root ? 1 : 0}});
    return state;
}

/// One rank's work. Collective.
template <class T>
std::vector<double> train_rank(threads_communicator& world, const settings& s) {
    using C = threads_communicator;
    const rank_grid grid(s.grid);
    const int spatial = grid.size();
    mesh<C> all(world, {{"pipeline", s.pipeline}, {"data", s.data}, {"spatial", spatial}});
    channel<C> copies = all.across(world, {"data", "spatial"});  // of this rank's parameters
    channel<C>&over = all["spatial"], &line = all["pipeline"];

    // The network of these ranks, in stages, of which one is here.
    const index_t side = s.net.size;
    spatial_parts<C, T> parts(over, grid, {side, side, side});
    const spatial_partition rows = parts.cut();
    const shape volume{1, side, side, side, s.net.channels};
    const shape here = rows.tensor_shape(grid, over.rank(), 1, s.net.channels);
    sequential<T> net = spatial == 1 ? cosmoflow<T>(s.net) : cosmoflow<T, cpu>(s.net, parts);
    const auto cuts = cuts_before(units_of(net, here), cuts_of<T>(s.net, s.pipeline));
    std::vector<sequential<T>> layers = cut(net, here, cuts);
    stage_links<T, cpu, C> links(line, boundaries_of(layers, here));
    sequential<T>& mine = layers[static_cast<std::size_t>(line.rank())];
    arena<T> weights(mine.parameters(), 1);
    std::vector<stage<sequential<T>>> stages;
    stages.emplace_back(mine, weights);
    bound_optimizer optimizer(sgd{}, weights);

    require(s.batch % s.data == 0, "a batch of ", s.batch, " samples on ", s.data, " data ranks");
    const auto micro_batches = static_cast<int>(s.batch / s.data);
    const index_t first = all.coordinate("data") * micro_batches;
    const pipeline_program program = make_schedule("1f1b", {s.pipeline, micro_batches});
    const double share = share_of_samples(1, spatial, over.rank()).weight / static_cast<double>(s.batch);
    std::int64_t done = 0;
    const state_view state = state_of(mine, {copies.host.rank(), copies.host.size()}, done, world.rank() == 0);
    if (const auto versions = list_versions(s.states); !versions.empty()) {
        const std::filesystem::path& newest = versions.front().directory;
        saved_state::of_packs(newest, own_packs(read_manifest(newest))).load(state);
    }
    std::vector<double> losses;
    for (auto step = static_cast<std::uint32_t>(done); step < static_cast<std::uint32_t>(s.steps); ++step) {
        const auto sample_of = [&](int m) { return step * s.batch + first + m; };
        const auto input = [&](int m) -> stage_input<T, cpu> {
            return {line.rank() == 0 ? rows_of_volume<T>(sample_of(m), volume, rows.begin(grid, over.rank()), here)
                                     : tensor<T>{},
                    {.random = {.seed = 1, .step = step, .first_sample = first + m, .samples = 1},
                     .input_gradient = false}};
        };
        double loss = 0;
        const auto objective = [&](int m, tensor<T> y) {
            auto [value, dy] = mean_squared{}(std::move(y), targets_of<T>(sample_of(m), s.net.outputs));
            for_each(functors::times<T>{static_cast<T>(share)}, dy);
            loss += value * share;
            return std::move(dy);
        };
        weights.zero_grad();
        execute(program, std::vector<index_t>(static_cast<std::size_t>(micro_batches), 1), stages, links, objective,
                input);
        all_reduce(copies.host, weights.grads().span());
        all_reduce(all.everyone().host, std::span(&loss, 1));
        optimizer.step(s.lr);
        losses.push_back(loss);
        ++done;
    }
    if (!s.states.empty()) {
        version_writer writer({.states = s.states, .attempt = {1, 1}, .rank = world.rank(), .ranks = world.size()},
                              start_helper());
        writer.capture(done, state, "{}");
        require(writer.finish(world).failed == 0, s.states.string(), ": the state was not saved");
    }
    return losses;
}

/// Throws what the first rank throws that fails, out of memory above all.
template <class T>
outcome train(const settings& s) {
    const auto ranks = static_cast<std::size_t>(s.ranks());
    outcome all{.peaks = std::vector<index_t>(ranks), .saved = std::vector<index_t>(ranks)};
    run_ranks(s.ranks(), {.kernel_threads = 1, .memory_limit = s.memory_limit}, [&](threads_communicator& c) {
        const auto losses = train_rank<T>(c, s);
        const auto r = static_cast<std::size_t>(c.rank());
        all.peaks[r] = memory_pool::host().total().peak;
        all.saved[r] = memory_pool::host().use_of(memory_category::saved).peak;
        if (r == 0) all.losses = losses;
    });
    return all;
}

/// The largest relative difference of two runs' losses.
inline double difference(const outcome& a, const outcome& b) {
    require(a.losses.size() == b.losses.size(), a.losses.size(), " and ", b.losses.size(), " steps");
    double most = 0;
    for (std::size_t i = 0; i < a.losses.size(); ++i)
        most = std::max(most, std::abs(a.losses[i] - b.losses[i]) / std::abs(b.losses[i]));
    return most;
}

}  // namespace cairn::cosmoflow_mesh
