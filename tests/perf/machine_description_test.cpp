// Machine files: what is read, what it means, and what is refused.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/train/configuration.hpp>
#include <cairn/train/machine_file.hpp>

#include <algorithm>
#include <string>

namespace cairn {

namespace {

const std::string whole = R"(
name = "whole"
[hosts]
count = 8
ranks = 2
cores = 8
memory = 16_000_000_000
[hosts.watts]
idle = 50
waiting = 80
busy = [[1, 200], [0.8, 120]]
[network.watts]
idle = 4
busy = 5
[network]
between = [[0, 1e-6], [1_000_000, 1e-4]]
inside = [[0, 2e-7], [1_000_000, 5e-5]]
topology = "torus"
dimensions = [4, 2]
[storage.shared]
bytes = 1e11
client = 5e9
latency = 5e-4
[storage.local]
read = 2e9
write = 1e9
capacity = 1_600_000_000_000
[kernels.gemm.f32]
start = 1e-6
flops = 1e11
bytes = 1e10
points = [[64, 32, 16, 1e6, 1e5, 42e-6], [8, 8, 8, 1e3, 768, 4.3472e-6]]
[kernels.gemm.any]
flops = 2e11
)";

machine_description read(const std::string& text) { return machine_in(configuration::from_text(text)); }

/// The error of the whole file with `from` replaced by `to`.
std::string error_with(const std::string& from, const std::string& to) {
    std::string text = whole;
    const auto at = text.find(from);
    REQUIRE(at != std::string::npos);
    return test::message_of([&] { read(text.replace(at, from.size(), to)); });
}

}  // namespace

TEST_CASE("machine files: hosts, network and kernels are read", "[perf]") {
    const machine_description m = read(whole);
    CHECK(m.most_ranks() == 16);
    CHECK(m.threads == 4);
    CHECK(m.host_of(3) == 1);
    CHECK(m.between.exchange(500'000) == Approx(5.05e-5));
    CHECK(m.inside.exchange(0) == Approx(2e-7));
    CHECK(m.topology.dimensions == std::vector<int>{4, 2});
    CHECK(m.power->idle == 50);
    CHECK(m.power->watts(0.5, 1) == 100);
    CHECK(m.cable_power->watts(0.5) == 4.5);
    CHECK(m.file_system->bandwidth == 1e11);
    CHECK(m.file_system->client == 5e9);
    CHECK(m.file_system->latency == 5e-4);
    CHECK(m.disk->read == 2e9);
    CHECK(m.disk->write == 1e9);
    CHECK(m.disk->latency == 0);
    CHECK(m.disk->capacity == 1'600'000'000'000);
    kernel_work work{.kind = "gemm", .format = "f32", .flops = 1e6, .bytes = 1e5, .shape = {64, 32, 16}, .extents = 3};
    CHECK(m.seconds(work) == Approx(42e-6));                            // as measured
    CHECK(m.seconds(work, 0.5) == Approx(42e-6 * (10 + 2 * 11) / 21));  // 10 of 21 µs by the rates are of its bytes
    // Elsewhere by the rates, 21 µs, of which one measurement took twice, the other four times as much: weighed by
    // their distances, computed by hand.
    work.shape[0] = 65;
    CHECK(m.seconds(work) == Approx(42e-6).epsilon(1e-4));
    work.shape = {64, 8, 8};
    CHECK(m.seconds(work) == Approx(77.0706e-6));
    CHECK(m.seconds(work) == Approx(77.0706e-6));  // once more
    work.format = "bf16";
    CHECK(m.seconds(work) == Approx(5e-6));  // "any"
    CHECK(test::message_of([&] { m.seconds({.kind = "pool", .format = "f32"}); }) ==
          "machine whole: no rate for the kernel 'pool' in format 'f32'; measure it, or give [kernels.other] for all "
          "that is not in the table");
    const machine_description other = read(whole + "[kernels.other]\nbytes = 1e9\n");
    CHECK(other.seconds({.kind = "pool", .format = "f32", .bytes = 1e3}) == Approx(1e-6));
}

TEST_CASE("machine files: what is missing, impossible or in another unit is refused", "[perf]") {
    const auto refused = [](const std::string& from, const std::string& to, const std::string& why) {
        INFO(from << " -> " << to);
        CHECK(test::contains(error_with(from, to), why));
    };
    refused("name = \"whole\"", "", "setting 'name' is missing");
    refused("count = 8", "count = 0", "hosts.count = 0 is out of range");
    refused("count = 8", "count = 7", "a torus of 8 hosts by its dimensions, but hosts = 7");
    refused("dimensions = [4, 2]", "", "a torus of 1 hosts by its dimensions");
    refused("memory = 16_000_000_000", "memory = 16_000", "were they MB or GB?");
    refused("cores = 8", "kores = 8", "did you mean 'hosts.cores'");
    refused("between = [[0, 1e-6], [1_000_000, 1e-4]]", "", "[network] has no points");
    refused("inside = [[0, 2e-7], [1_000_000, 5e-5]]", "", "says nothing of messages inside one");
    refused("[[0, 1e-6], [1_000_000, 1e-4]]", "[[0, 1.5], [1_000_000, 100]]", "were they ms or µs?");
    refused("[[0, 1e-6], [1_000_000, 1e-4]]", "[[0, 1e-6]]", "has one point");
    refused("[[0, 1e-6], [1_000_000, 1e-4]]", "[[0, 1e-6], [1_000_000, 1e-7]]", "takes no longer than one of 0");
    refused("[[0, 1e-6], [1_000_000, 1e-4]]", "[[0, -1e-6], [1_000_000, 1e-4]]", "seconds above 0");
    refused("start = 1e-6", "start = -1e-6", "kernels.gemm.f32.start = -1e-06 is out of range");
    refused("start = 1e-6", "start = 2", "were they ms or µs?");
    refused("flops = 1e11", "flops = 100", "were they GFLOP/s or GB/s?");
    refused("flops = 2e11", "start = 1e-6", "needs flops or bytes");
    refused("[8, 8, 8, 1e3, 768, 4.3472e-6]", "[8]", "each is a shape, then operations, bytes and seconds");
    refused("topology = \"torus\"", "topology = \"fat tree\"", "setting 'network.dimensions' is not known");
    refused("topology = \"torus\"\ndimensions = [4, 2]", "topology = \"fat tree\"\ndown = [4, 2]\nup = [1, 2]",
            "one number a level in each; there are 2, 2 and 0");
    refused("topology = \"torus\"\ndimensions = [4, 2]",
            "topology = \"fat tree\"\ndown = [4, 4]\nup = [1, 2]\ncables = [1, 1]", "a fat tree of 16 hosts");
    refused("topology = \"torus\"", "topology = \"taurus\"", "did you mean 'torus'");
    refused("idle = 50", "idle = -50", "hosts.watts.idle = -50 is out of range");
    refused("idle = 50", "idle = 90", "idle = 90 is above waiting = 80");
    refused("waiting = 80", "", "hosts.watts.waiting is missing");
    refused("waiting = 80", "waiting = 130", "p-state 1: 120 busy is below waiting = 130");
    refused("[[1, 200], [0.8, 120]]", "[[1, 0.2], [0.8, 0.12]]", "were they kW?");
    refused("[[1, 200], [0.8, 120]]", "[[1, 200_000], [0.8, 120_000]]", "were they mW?");
    refused("[[1, 200], [0.8, 120]]", "[[1, 200], [0.8, 200]]", "both fall from p-state to p-state");
    refused("[[1, 200], [0.8, 120]]", "[[1, 200], [1, 120]]", "both fall from p-state to p-state");
    refused("[[1, 200], [0.8, 120]]", "[[2.7, 200], [2.2, 120]]", "the first p-state is the highest, 1");
    refused("[[1, 200], [0.8, 120]]", "[[1, -200]]", "each p-state is [frequency, watts], both above 0");
    refused("[[1, 200], [0.8, 120]]", "[]", "busy is missing");
    refused("idle = 50", "idle = 50\np_state = 2", "p_state = 2; busy has p-states 0 to 1");
    refused("busy = 5", "busy = 3", "network.watts: idle = 4 is above busy = 3");
    refused("idle = 4\nbusy = 5", "idle = 0.004\nbusy = 0.005", "were they kW?");
    refused("idle = 4\nbusy = 5", "idle = 4000\nbusy = 5000", "were they mW?");
    refused("bytes = 1e11", "bytes = -1", "storage.shared.bytes = -1 is out of range");
    refused("bytes = 1e11", "bytes = 1e5", "storage.shared.bytes: 100000 bytes a second: were they MB/s or GB/s?");
    refused("bytes = 1e11\n", "", "storage.shared.bytes is missing");
    refused("client = 5e9", "client = 5", "storage.shared.client: 5 bytes a second: were they MB/s or GB/s?");
    refused("latency = 5e-4", "latency = 5", "latency = 5 seconds of a request: were they ms or µs?");
    refused("read = 2e9", "read = 2000", "storage.local.read: 2000 bytes a second: were they MB/s or GB/s?");
    refused("write = 1e9\n", "", "storage.local.write is missing");
    refused("write = 1e9", "write = 0", "storage.local.write = 0 is out of range");
    refused("capacity = 1_600_000_000_000", "capacity = 1600", "were they GB or TB?");
    CHECK(test::contains(test::message_of([] { read(whole).check_ranks(17); }),
                         "17 ranks asked for; 8 hosts of 2 have room for 16"));
}

TEST_CASE("machine files: those of benchmarks/machines are read", "[perf]") {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator("benchmarks/machines")) {
        INFO(entry.path());
        CHECK(read_machine(entry.path()).most_ranks() >= 2);
        ++files;
    }
    CHECK(files >= 3);
}

}  // namespace cairn
