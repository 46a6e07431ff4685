// The laws of communicators and collectives on ranks that are processes. Started by tests/mpi/run under mpirun.
//   laws            all laws                 laws throw   rank 1 fails while the others wait for it
//   laws wait       rank 0 waits for a message that is never sent
//   laws large      one message of more than 2 GiB between ranks 0 and 1
//   laws sleep      waits to be killed

#include "collectives/laws.hpp"
#include "comm/point_to_point_laws.hpp"
#include "parallel/spatial/networks.hpp"
#include "parallel/tensor/training.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/checked_communicator.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/mpi.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/optim/sgd.hpp>

#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

namespace cairn {

namespace {

int cases = 0;

/// Every collective with every count, against plain loops.
template <class T>
void collectives(any_communicator& c) {
    laws::all_laws<T>(c, laws::expectations<T>(c.size()));
    ++cases;
}

/// A transformer whose tensors are cut over processes, which communicate beside their computing.
void tensor_parallel(mpi_communicator& world) {
    if (world.size() != 2 && world.size() != 4) return;
    const sgd rule{{.momentum = 0.9}};
    for (const sequence_layout sequences : {sequence_layout::whole, sequence_layout::parts}) {
        const split_layers::run got = split_layers::train_on(world, rule, sequences);
        if (world.rank() == 0) {
            const auto d = split_layers::difference(got, split_layers::train_alone(rule));
            require(std::max({d.numbers, d.gradients, d.values}) <= 1e-12, "tensor parallelism: losses ", d.numbers,
                    ", gradients ", d.gradients, ", values ", d.values, " from those of one rank");
        }
        ++cases;
    }
}

/// Debug mode: every rank learns who calls what.
void checks(mpi_communicator& world) {
    checked_communicator<mpi_communicator> c(world.split(0, world.rank()));
    laws::all(c);
    ++cases;
    if (c.size() < 2) return;
    std::string text;
    try {
        const auto scope =
            c.rank() == 1 ? enter(c, {"broadcast", "double", 7, 0}) : enter(c, {"ring all-reduce", "float", 1000});
    } catch (const error& e) {
        text = e.what();
    }
    const char* want = "rank 0 calls ring all-reduce of 1000 float, rank 1 calls broadcast of 7 double from rank 0";
    require(text.find(want) != std::string::npos, "debug mode says: '", text, "'");
    ++cases;
}

/// A network whose layers are cut over the ranks leaves what one rank leaves.
void spatial(mpi_communicator& world) {
    if (world.size() != 2 && world.size() != 4) return;
    const auto make = [](auto&& parts) { return spatial_networks::averaging_network(parts); };
    const shape input{3, 7, 9, 8, 2};
    const auto alone = spatial_networks::on_one_rank(make, input);
    spatial_networks::check_on(world, rank_grid({world.size() / 2, 2, 1}), make, input, alone);
    ++cases;
}

void all_laws(mpi_communicator& world) {
    laws::all(world);
    checks(world);
    any_communicator c(world.split(0, world.rank()));
    laws::all(c);
    counting_communicator<mpi_communicator> counted(world.split(0, world.rank()));
    laws::all(counted);
    tensor_parallel(world);
    cases += 18;
    collectives<float>(c);
    collectives<double>(c);
    collectives<bfloat16>(c);
    collectives<float16>(c);
    collectives<std::int32_t>(c);
    const auto wrong_size = [&] {
        std::array<char, 9> room{};
        if (c.size() < 2 || world.rank() > 1) return;
        if (world.rank() == 0) {
            send(world, std::span<char>(room).first(5), 1, 3);
            return;
        }
        try {
            recv(world, std::span<char>(room), 0, 3);
            fail("a message of another size was taken");
        } catch (const error& e) {
            const std::string text = e.what();
            require(text.find("rank 1") != std::string::npos && text.find("9 bytes") != std::string::npos &&
                        text.find("tag 3") != std::string::npos,
                    "the error does not say who, what and where: ", text);
        }
    };
    wrong_size();
    require_equal(c, "the same", "settings");
    spatial(world);
    // Whatever this MPI can: it is named, and says one thing or the other.
    const std::string why = why_mpi_takes_no_gpu_memory();
    require(!mpi_library().empty() && (why.empty() || why.starts_with(mpi_library() + ' ')), "MPI and GPUs: '", why,
            "'");
    cases += 2;
    if (world.rank() == 0) std::printf("%d ranks: %d laws hold\n", world.size(), cases);
}

}  // namespace

}  // namespace cairn

int main(int argc, char** argv) {
    using namespace cairn;
    return run_mpi(argc, argv, [&](mpi_communicator& world) {
        const std::string what = argc > 1 ? argv[1] : "";
        int x = 0;
        if (what == "throw") {
            if (world.rank() == 1) fail("out of paper");
            recv(world, std::span<int>(&x, 1), 1, 2);
        } else if (what == "wait") {
            const auto scope = enter(world, {"ring all-reduce", "float", 1000});
            if (world.rank() == 0) recv(world, std::span<int>(&x, 1), 1, 7);
            std::this_thread::sleep_for(std::chrono::seconds(30));
        } else if (what == "sleep") {
            if (world.rank() == 0) recv(world, std::span<int>(&x, 1), 1, 2);
            std::this_thread::sleep_for(std::chrono::seconds(60));
        } else if (what == "large") {
            std::vector<std::uint64_t> data((std::size_t{1} << 28) + 3);  // 2 GiB and 24 bytes
            if (world.rank() == 0)
                for (std::size_t i = 0; i < data.size(); ++i) data[i] = i * 7;
            if (world.rank() == 0) send(world, std::span<std::uint64_t>(data), 1, 2);
            if (world.rank() == 1) recv(world, std::span<std::uint64_t>(data), 0, 2);
            for (std::size_t i = 0; i < data.size(); ++i) require(data[i] == i * 7, "word ", i, " is ", data[i]);
            if (world.rank() == 1) std::printf("%zu bytes in one message\n", data.size() * 8);
        } else {
            all_laws(world);
        }
        return 0;
    });
}
