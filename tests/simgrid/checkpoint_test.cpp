// Simulated runs write their states as real ones do, beside the steps: the file system takes its time for each byte.

#include "simgrid/simulated.hpp"
#include "state/temporary_folder.hpp"
#include "train/compiled_session.hpp"
#include "train/saved_states.hpp"

#include <cairn/comm/threads.hpp>

#include <string>
#include <vector>

namespace cairn {

namespace {

struct saving_case {
    const char* workload = "lenet-mnist";
    int ranks = 1;
    std::vector<std::string> set = {"train.batch=16", "train.test_every=0"};
};

template <class World>
nlohmann::json train_of(const saving_case& of, World& world, const std::filesystem::path& out,
                        const std::string& machine) {
    configuration settings = configuration::from_file(concat("benchmarks/workloads/", of.workload, ".toml"));
    for (const std::string& one : of.set) settings.set(one);
    return session<cpu, float>(std::move(settings),
                               {.out = out, .resume = {}, .max_steps = 2, .generated = true, .machine = machine},
                               any_communicator(world.split(0, world.rank())))
        .train();
}

/// Bytes of the state that a real run leaves, but for its choices of kernels, of which a simulation makes none.
double bytes_of_state(const saving_case& of) {
    const ::temporary_folder folder;
    return std::stod(in_child_process([&] {
        run_ranks(of.ranks, {.kernel_threads = 1, .time_limit = 60},
                  [&](threads_communicator& world) { train_of(of, world, folder / "run", ""); });
        const auto version = test::newest_version(folder / "run");
        std::uint64_t bytes = 0;
        for (const auto& pack : read_manifest(version).packs) {
            bytes += pack.bytes;
            for (const packed_piece& p : read_pack_directory(version / pack.file).pieces)
                if (p.name == "machine/kernels") bytes -= (p.bytes + 63) / 64 * 64;  // small pieces follow
        }
        return text_of(static_cast<double>(bytes));
    }));
}

struct told_times {
    double all, saving;           // seconds of the simulation; of them, by the record, of rank 0's steps
    std::vector<double> by_step;  // the latter
};

told_times simulated_times(const saving_case& of, const std::optional<shared_storage>& files) {
    const ::temporary_folder folder;
    machine_description m = test::star(of.ranks);
    m.cores = 2;
    m.other = kernel_rate{.flops = 1e10, .bandwidth = 1e10};
    m.file_system = files;
    const double seconds = test::simulated_seconds(
        m, of.ranks, [&](simgrid_communicator& world) { train_of(of, world, folder / "run", "star"); });
    std::ifstream in(folder / "run" / "record.json");
    const nlohmann::json record = nlohmann::json::parse(in);
    told_times told{seconds, 0, {}};
    for (const auto& step : record.at("simulated").at("steps")) {
        told.by_step.push_back(step.at("checkpoint").get<double>());
        told.saving += told.by_step.back();
    }
    return told;
}

}  // namespace

TEST_CASE("simulated runs: the file system takes its time for the state that a real run leaves", "[simgrid]") {
    const std::vector<saving_case> cases{
        {},
        {.ranks = 2,
         .set = {"train.batch=16", "train.test_every=0", "parallel.zero_stage=1", "optimizer.kind='adam'"}}};
    for (const saving_case& of : cases) {
        const double bytes = bytes_of_state(of);
        const told_times none = simulated_times(of, {}), fast = simulated_times(of, shared_storage{.bandwidth = 1e9}),
                         slow = simulated_times(of, shared_storage{.bandwidth = 1e6});
        CAPTURE(of.ranks, bytes);
        CHECK(bytes > 100'000);
        CHECK(slow.all - fast.all == Approx(bytes * (1e-6 - 1e-9)).epsilon(1e-6));
        CHECK(slow.saving - fast.saving == Approx(bytes * (1e-6 - 1e-9)).epsilon(1e-6));
        CHECK(none.saving == 0);
    }
}

TEST_CASE("simulated runs: states are written beside the steps", "[simgrid]") {
    saving_case of;
    const double bytes = bytes_of_state(of);
    of.set.push_back("state.every='1 step'");
    const told_times told = simulated_times(of, shared_storage{.bandwidth = 1e6});
    REQUIRE(told.by_step.size() == 2);
    CHECK(told.by_step[0] < 0.01 * bytes * 1e-6);  // a copy
    // Behind the last step the first state is waited for, and then its own.
    CHECK(told.by_step[1] < 2 * bytes * 1e-6);
    CHECK(told.by_step[1] > bytes * 1e-6);
    CHECK(told.all > 2 * bytes * 1e-6);
}

}  // namespace cairn
