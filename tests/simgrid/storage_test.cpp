// Disks of simulated machines: closed forms of shared bandwidth.

#include "simgrid/simulated.hpp"

#include <vector>

namespace cairn {

namespace {

/// A file system of 10 GB/s, and disks of 2 GB/s that are written at 1.
machine_description with_disks(int hosts) {
    machine_description m = test::star(hosts);
    m.file_system = shared_storage{.bandwidth = 10e9};
    m.disk = local_storage{.read = 2e9, .write = 1e9};
    return m;
}

double seconds_of_reads(const machine_description& m, int ranks, storage from) {
    return test::simulated_seconds(m, ranks, [&](simgrid_communicator&) { phantom_here->read_storage(from, 1e9); });
}

}  // namespace

TEST_CASE("simulated storage: readers share the file system, and have disks of their own", "[simgrid]") {
    for (const int p : {1, 4, 16}) {
        CHECK(seconds_of_reads(with_disks(16), p, storage::shared) == Approx(0.1 * p).epsilon(1e-6));
        CHECK(seconds_of_reads(with_disks(16), p, storage::local) == Approx(0.5).epsilon(1e-6));
    }
}

TEST_CASE("simulated storage: a host gets its client's share, a request its latency", "[simgrid]") {
    machine_description m = with_disks(16);
    m.file_system->client = 2.5e9, m.file_system->latency = 0.01, m.disk->latency = 0.02;
    CHECK(seconds_of_reads(m, 1, storage::shared) == Approx(0.41).epsilon(1e-6));
    CHECK(seconds_of_reads(m, 8, storage::shared) == Approx(0.81).epsilon(1e-6));
    CHECK(seconds_of_reads(m, 8, storage::local) == Approx(0.52).epsilon(1e-6));
    m.ranks_per_host = 4, m.inside = link_model(1e-6, 1e-10, 0);  // one client, one disk
    CHECK(seconds_of_reads(m, 4, storage::shared) == Approx(1.61).epsilon(1e-6));
    CHECK(seconds_of_reads(m, 4, storage::local) == Approx(2.02).epsilon(1e-6));
    CHECK(test::simulated_seconds(m, 1, [](simgrid_communicator&) {
              phantom_here->write_storage(storage::local, 1e9);
              phantom_here->write_storage(storage::shared, 1e9);
          }) == Approx(1.02 + 0.41).epsilon(1e-6));
}

TEST_CASE("simulated storage: files and messages take ways of their own, with joules", "[simgrid]") {
    machine_description m = with_disks(2);
    m.power = host_power{100, 250, {{1, 700}}};
    m.cable_power = link_power{4, 10};
    const double seconds = test::simulated_seconds(m, 2, [](simgrid_communicator& c) {
        if (c.rank() == 0) {
            const auto queue = phantom_here->start_queue();
            queue->submit([] { phantom_here->read_storage(storage::shared, 10e9); });
            tensor<float> data({250'000'000});
            send(c, std::span<const float>(data.span()), 1, 1);
            queue->wait();
        } else {
            tensor<float> data({250'000'000});
            recv(c, data.span(), 0, 1);
        }
    });
    CHECK(seconds == Approx(1.00001).epsilon(1e-5));
}

TEST_CASE("simulated storage: a machine without disks says so", "[simgrid]") {
    for (const auto& [where, what] :
         {std::pair(storage::shared, "rank 0 reads from the file system, but the machine file has no [storage.shared]"),
          std::pair(storage::local, "rank 0 reads from its host's disk, but the machine file has no [storage.local]")})
        CHECK(test::contains(
            test::simulated_error(test::star(1), 1,
                                  [where = where](simgrid_communicator&) { phantom_here->read_storage(where, 1); }),
            what));
}

}  // namespace cairn
