// States of simulated ranks: written to the file system, or through the node's disk beside the steps.

#include "simgrid/simulated.hpp"

#include <cairn/parallel/progress_thread.hpp>
#include <cairn/state/burst_buffer.hpp>

namespace cairn {

namespace {

/// A file system of 1 GB/s and a disk that reads 4 GB/s and writes 2: a state of 400 MB takes 0.4 and 0.2 s.
machine_description saving() {
    machine_description m = test::star(1);
    m.cores = 2;
    m.file_system = shared_storage{.bandwidth = 1e9};
    m.disk = local_storage{.read = 4e9, .write = 2e9};
    return m;
}

/// Three steps of a second, each followed by a save.
template <class Save>
void train_and_save(Save&& save) {
    const tensor<float> weights({100'000'000});
    state_view state;
    state.add("weights", weights);
    for (int step = 0; step < 3; ++step) {
        phantom_here->pass(1);
        save(state);
    }
}

}  // namespace

TEST_CASE("simulated states: written to the file system, steps wait for them", "[simgrid]") {
    const double seconds = test::simulated_seconds(saving(), 1, [](simgrid_communicator&) {
        train_and_save([](const state_view& state) { save_state("/nowhere/state.cairn", state); });
    });
    CHECK(seconds == Approx(3 * (1 + 0.4)).epsilon(1e-4));
}

TEST_CASE("simulated states: through the node's disk, the drain is beside the next steps", "[simgrid]") {
    const double seconds = test::simulated_seconds(saving(), 1, [](simgrid_communicator&) {
        burst_buffer burst("/nowhere", start_helper());
        train_and_save([&](const state_view& state) { burst.save("/elsewhere/state.cairn", state); });
        burst.finish();
    });
    CHECK(seconds == Approx(3 * (1 + 0.2) + 0.1 + 0.4).epsilon(1e-4));  // the last drain is waited for
}

}  // namespace cairn
