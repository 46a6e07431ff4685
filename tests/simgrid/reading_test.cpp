// What reading takes on simulated machines, by the strategies and the loader of real runs: closed forms.

#include "simgrid/simulated.hpp"

#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/data/loader.hpp>
#include <cairn/data/packed.hpp>

#include <algorithm>
#include <sstream>
#include <vector>

namespace cairn {

namespace {

constexpr index_t epoch_samples = 256;
constexpr double sample_bytes = 1e6;

/// Hosts that share 1 GB/s, with disks of 2 GB/s that are written at 1; decoding at 1 GB/s.
machine_description readers(int hosts) {
    machine_description m = test::star(hosts);
    m.cores = 2;
    m.file_system = shared_storage{.bandwidth = 1e9};
    m.disk = local_storage{.read = 2e9, .write = 1e9};
    m.kernels[{"decode", "any"}] = {.bandwidth = 1e9};
    return m;
}

packed_format simulated_format(reading_strategy reading) {
    packed_format format;
    format.reading = reading;
    format.samples = epoch_samples;
    format.stored_bytes = static_cast<index_t>(sample_bytes);
    format.sample = {8, 8, 3};
    format.window = {8, 2};
    return format;
}

/// Seconds of the start and of two epochs, whose steps take `step` each, and rank 0's stalls in them.
std::vector<double> epochs_of(const machine_description& m, int ranks, const packed_format& format, double step,
                              loader_config config = {}) {
    const auto told = std::make_shared<std::vector<double>>();
    std::istringstream in(test::simulated(
        m, ranks,
        [&](simgrid_communicator& c) {
            loader_config mine = config;
            mine.rank = c.rank(), mine.world = c.size();
            const data_parts parts = format.without_files(1);
            mine.reading = parts.reading;
            simgrid_communicator node = c.split_node();
            mine.reading->start({mine.batch, mine.rank, mine.world, mine.seed, node.rank(), node.size()});
            barrier(c);
            const double staged = now();
            loader l(parts.train, mine);
            double begin = staged;
            if (c.rank() == 0) told->push_back(staged);
            for (int epoch = 0; epoch < 2; ++epoch) {
                l.reset_stats();
                while (auto b = l.next()) {
                    phantom_here->pass(step);
                    barrier(c);
                }
                if (c.rank() == 0) told->push_back(now() - begin), told->push_back(l.stats().stall_seconds);
                begin = now();
            }
        },
        [&](const simulation&) {
            std::string all;
            for (const double x : *told) all += text_of(x) + ' ';
            return all;
        }));
    std::vector<double> numbers;
    for (double x = 0; in >> x;) numbers.push_back(x);
    return numbers;
}

}  // namespace

TEST_CASE("simulated reading: without workers a step waits for its batch, read and decoded", "[simgrid]") {
    // 4 ranks, 16 samples a batch: 4 MB each at 250 MB/s, then decoded.
    const auto t =
        epochs_of(readers(4), 4, simulated_format(reading_strategy::shared), 0.01, {.batch = 16, .workers = 0});
    REQUIRE(t.size() == 5);
    CHECK(t[1] == Approx(16 * (0.016 + 0.004 + 0.01)).epsilon(0.02));
    CHECK(t[2] == Approx(16 * 0.020).epsilon(0.02));
}

TEST_CASE("simulated reading: workers read beside the steps, which wait for the slower of both", "[simgrid]") {
    const packed_format shared = simulated_format(reading_strategy::shared);
    const loader_config config{.batch = 16, .workers = 2, .prefetch = 2};
    const auto slow_steps = epochs_of(readers(4), 4, shared, 0.05, config);
    CHECK(slow_steps[3] == Approx(16 * 0.05).epsilon(0.01));
    CHECK(slow_steps[4] < 0.01);
    // All 8 workers read a sample each, 8 MB at 1 GB/s, and then all decode one in 1 ms.
    const auto fast_steps = epochs_of(readers(4), 4, shared, 0.005, config);
    CHECK(fast_steps[3] == Approx(32 * (0.008 + 0.001)).epsilon(0.01));
    CHECK(fast_steps[4] == Approx(32 * 0.009 - 16 * 0.005).epsilon(0.01));
}

TEST_CASE("simulated reading: staging copies all samples to each node once", "[simgrid]") {
    const packed_format staged = simulated_format(reading_strategy::staged);
    const auto t = epochs_of(readers(4), 4, staged, 0.001, {.batch = 16, .workers = 1});
    // Each of 4 nodes reads 256 MB at a quarter of 1 GB/s, and writes them at 1 GB/s.
    CHECK(t[0] == Approx(1.024 + 0.256).epsilon(0.01));
    // 64 MB of each node at 2 GB/s, and decoded at 1 GB/s, one after the other.
    CHECK(t[3] == Approx(0.032 + 0.064).epsilon(0.1));
    machine_description m = readers(1);
    m.ranks_per_host = 4, m.inside = link_model(1e-6, 1e-10, 0);  // which copy a quarter each
    CHECK(epochs_of(m, 4, staged, 0.001, {.batch = 16, .workers = 1})[0] == Approx(0.256 + 0.256).epsilon(0.01));
    m.disk->capacity = 200'000'000;
    CHECK(test::contains(test::message_of([&] { epochs_of(m, 4, staged, 0.001, {.batch = 16}); }),
                         "bytes on the disk of host 0, which has room for 200000000"));
}

TEST_CASE("simulated reading: windows take requests of whole runs, and the kept part from the disk", "[simgrid]") {
    packed_format windowed = simulated_format(reading_strategy::windowed);
    machine_description m = readers(4);
    m.file_system->latency = 0.01;
    m.kernels[{"decode", "any"}] = {.bandwidth = 1e12};
    const loader_config config{.batch = 16, .workers = 1};
    // A request for each of 64 samples against one for each of 8 runs.
    const auto alone = epochs_of(m, 4, simulated_format(reading_strategy::shared), 1e-4, config);
    windowed.kept = 0;
    const auto runs = epochs_of(m, 4, windowed, 1e-4, config);
    CHECK(alone[3] == Approx(0.256 + 64 * 0.01).epsilon(0.15));
    CHECK(runs[3] == Approx(0.256 + 8 * 0.01).epsilon(0.15));
    windowed.kept = 0.5;
    const auto kept = epochs_of(m, 4, windowed, 1e-4, config);
    CHECK(kept[1] == Approx(0.256 + 8 * 0.01 + 0.032).epsilon(0.15));  // written once
    CHECK(kept[3] < 0.65 * runs[3]);
}

TEST_CASE("simulated reading: a machine without a rate of decoding says so", "[simgrid]") {
    machine_description m = readers(2);
    m.kernels.erase({"decode", "any"});
    CHECK(test::contains(test::message_of([&] {
                             epochs_of(m, 2, simulated_format(reading_strategy::shared), 0.01,
                                       {.batch = 16, .workers = 0});
                         }),
                         "no rate for the kernel 'decode'"));
}

}  // namespace cairn
