// How long epochs take whose samples are read by each strategy of data/reading: on real files by real ranks, or on a
// described machine by simulated ones, with the same loader and the same strategies. A step is a pause of --step
// seconds, as that of a rank whose GPU computes, and a barrier.
//   reading --write 4096 --data FOLDER                       samples of noise, FOLDER/train.packed
//   mpirun -np 4 reading --data FOLDER --strategy staged     each epoch's seconds, and rank 0's stalls
//   reading --measure --data FOLDER                          disks, for a machine file
//   reading --simulate MACHINE.toml --ranks 256 --samples 1281167 --bytes 110000 --strategy windowed --step 0.1

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/comm/self.hpp>
#include <cairn/comm/simgrid.hpp>
#include <cairn/data/loader.hpp>
#include <cairn/data/packed.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/machine_file.hpp>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace cairn;

struct asked {
    std::string data, strategy = "shared", machine;
    packed_format format;
    index_t write = 0, edge = 64;  // samples of edge × edge × 3
    loader_config loading{.batch = 64, .workers = 1, .prefetch = 2};
    int epochs = 3, ranks = 1;
    double step = 0.02;
    bool measure = false;
};

void compute(double seconds) {
    if (on_phantom_rank())
        phantom_here->pass(seconds);
    else
        std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// Collective: what all epochs take.
nlohmann::json read_epochs(any_communicator& world, const asked& a) {
    const data_parts parts = on_phantom_rank() ? a.format.without_files(1) : a.format.load(a.data);
    loader_config c = a.loading;
    c.rank = world.rank(), c.world = world.size(), c.reading = parts.reading;
    any_communicator node = world.split_node();
    barrier(world);
    const double begin = now();
    c.reading->start({c.batch, c.rank, c.world, c.seed, node.rank(), node.size()});
    barrier(world);
    nlohmann::json result{{"strategy", a.strategy}, {"ranks", c.world}, {"start_s", now() - begin}};
    loader l(parts.train, c);
    for (int epoch = 0; epoch < a.epochs; ++epoch) {
        l.reset_stats();
        const double epoch_begin = now();
        while (const auto b = l.next()) {
            compute(a.step);
            barrier(world);
        }
        result["epochs_s"].push_back(now() - epoch_begin);
        result["stalls_s"].push_back(l.stats().stall_seconds);
    }
    return result;
}

/// Least seconds of 5 calls.
template <class F>
double least_seconds(F&& f) {
    double least = 1e9;
    for (int i = 0; i < 5; ++i) {
        const double begin = now();
        f(i);
        least = std::min(least, now() - begin);
    }
    return least;
}

/// Bytes a second and seconds of a request. The shared file is read long, so that what a throttled disk gives at once
/// after a pause does not count, and its requests are said to have no latency beside that.
nlohmann::json measure(const asked& a) {
    const packed_head head = read_packed_head(std::filesystem::path(a.data) / "train.packed");
    const record_file shared({.path = std::filesystem::path(a.data) / "train.packed",
                              .offset = packed_head::bytes,
                              .record = head.record(),
                              .count = head.count,
                              .direct = a.format.direct});
    const index_t many = std::min<index_t>(head.count / 5, 256);
    record_file local = record_file::create({.path = std::filesystem::path(a.format.local) / "measure",
                                             .where = storage::local,
                                             .record = head.record(),
                                             .count = many},
                                            {0, many});
    std::vector<std::byte> room(static_cast<std::size_t>(many * head.record()));
    const std::span<std::byte> one(room.data(), static_cast<std::size_t>(head.record()));
    const auto line = [&](auto&& transfer) {  // latency, bytes a second
        const double of_many = least_seconds([&](int i) { transfer(range{i * many, many}, std::span(room)); });
        const double of_one = least_seconds([&](int i) { transfer(range{i * many, 1}, one); });
        const double bandwidth = static_cast<double>((many - 1) * head.record()) / (of_many - of_one);
        return std::pair(std::max(0.0, of_one - static_cast<double>(head.record()) / bandwidth), bandwidth);
    };
    const double begin = now();
    for (int i = 0; i < 5; ++i) shared.read({i * many, many}, room);
    const double shared_bytes = static_cast<double>(5 * many * head.record()) / (now() - begin);
    const auto [write_latency, write] = line([&](range r, auto from) { local.write({0, r.count}, from); });
    const auto [read_latency, read] = line([&](range r, auto to) { local.read({0, r.count}, to); });
    std::vector<float> x(static_cast<std::size_t>(head.sample.size()));
    const double decode = least_seconds([&](int) { std::memcpy(x.data(), room.data(), x.size() * sizeof(float)); });
    return {{"shared", {{"latency", 0.0}, {"bytes", shared_bytes}}},
            {"local", {{"latency", std::max(write_latency, read_latency)}, {"read", read}, {"write", write}}},
            {"decode_bytes", static_cast<double>(head.record()) / std::max(decode, 1e-9)},
            {"record", head.record()}};
}

/// Rank 0's result.
nlohmann::json simulate(const asked& a) {
#if CAIRN_HAS_SIMGRID
    const machine_description machine = read_machine(a.machine);
    nlohmann::json result;
    const auto all = run_simulated(machine, a.ranks, [&](simgrid_communicator& world) {
        any_communicator all_ranks = world.split(0, world.rank());
        nlohmann::json mine = read_epochs(all_ranks, a);
        if (world.rank() == 0) result = std::move(mine);
    });
    result["machine"] = machine.name;
    result["seconds"] = all.seconds;
    return result;
#else
    fail("--simulate ", a.machine, ": this program was built without SimGrid (Debian: libsimgrid-dev)");
#endif
}

int run(int argc, char** argv, any_communicator world) {
    CLI::App app{"Seconds of epochs by strategies of reading, on real or simulated ranks."};
    asked a;
    app.add_option("--data", a.data, "folder of train.packed, in the shared file system");
    app.add_option("--write", a.write, "writes so many samples there, and ends")->check(CLI::PositiveNumber);
    app.add_option("--edge", a.edge, "of --write: pixels of an edge")->check(CLI::PositiveNumber);
    app.add_flag("--measure", a.measure, "measures disks, and ends");
    app.add_option("--strategy", a.strategy)->check(CLI::IsMember({"shared", "staged", "windowed"}));
    app.add_option("--local", a.format.local, "folder on the node's own disk");
    app.add_flag("--direct", a.format.direct, "reads of the shared file pass the page cache by");
    app.add_option("--run", a.format.window.run)->check(CLI::PositiveNumber);
    app.add_option("--window", a.format.window.window)->check(CLI::PositiveNumber);
    app.add_option("--kept", a.format.kept)->check(CLI::Range(0.0, 1.0));
    app.add_option("--batch", a.loading.batch)->check(CLI::PositiveNumber);
    app.add_option("--workers", a.loading.workers)->check(CLI::NonNegativeNumber);
    app.add_option("--prefetch", a.loading.prefetch)->check(CLI::PositiveNumber);
    app.add_option("--epochs", a.epochs)->check(CLI::PositiveNumber);
    app.add_option("--step", a.step, "seconds that a step computes")->check(CLI::NonNegativeNumber);
    app.add_option("--simulate", a.machine, "machine file");
    app.add_option("--ranks", a.ranks, "of --simulate")->check(CLI::PositiveNumber);
    app.add_option("--samples", a.format.samples, "of --simulate")->check(CLI::PositiveNumber);
    app.add_option("--bytes", a.format.stored_bytes, "of a sample, of --simulate")->check(CLI::PositiveNumber);
    CLI11_PARSE(app, argc, argv);
    a.format.sample = {1, 1, 1};  // of simulated samples: what a batch holds does not matter
    a.format.reading = a.strategy == "staged"     ? reading_strategy::staged
                       : a.strategy == "windowed" ? reading_strategy::windowed
                                                  : reading_strategy::shared;
    if (a.write > 0) {
        std::filesystem::create_directories(a.data);
        write_packed(synthetic_data(a.write, {a.edge, a.edge, 3}, numbered_classes(10), 1),
                     std::filesystem::path(a.data) / "train.packed");
        return 0;
    }
    const nlohmann::json result = !a.machine.empty() ? simulate(a) : a.measure ? measure(a) : read_epochs(world, a);
    if (world.rank() == 0) std::cout << result.dump() << std::endl;
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
#if CAIRN_HAS_MPI
    if (started_by_mpi())
        return run_mpi(argc, argv,
                       [&](mpi_communicator& world) { return run(argc, argv, world.split(0, world.rank())); });
#endif
    try {
        return run(argc, argv, self_communicator{});
    } catch (const std::exception& e) {
        std::cerr << "reading: " << e.what() << '\n';
        return 1;
    }
}
