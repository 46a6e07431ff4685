// Code of course/lectures/02-ring-allreduce.md. Runs on ranks that are threads; checks and prints what the page says.

#include <cairn/comm/collectives/cost_model.hpp>
#include <cairn/comm/collectives/halving_doubling.hpp>
#include <cairn/comm/collectives/recursive_doubling.hpp>
#include <cairn/comm/collectives/ring.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/threads.hpp>

#include <cstdio>
#include <iostream>
#include <vector>

using namespace cairn;

void shift() {
    // --8<-- [start:shift]
    run_ranks(4, [](threads_communicator& c) {
        const int right = (c.rank() + 1) % c.size(), left = (c.rank() + c.size() - 1) % c.size();
        std::vector<float> mine(3, static_cast<float>(c.rank())), got(3);
        sendrecv(c, std::span<float>(mine), right, std::span<float>(got), left, 1);  // the last number is a tag
        require(got[0] == static_cast<float>(left), "rank ", c.rank(), " has ", got[0]);
    });
    // --8<-- [end:shift]
}

void count() {
    // --8<-- [start:count]
    run_ranks(8, [](threads_communicator& world) {
        std::vector<float> data(100'000, 1.0f);                 // 400 kB
        counting_communicator c(world.split(0, world.rank()));  // a communicator that counts
        ring_all_reduce(c, std::span<float>(data));
        if (c.rank() == 0) std::cout << "ring                  " << c.counts() << '\n';
        c.reset();
        halving_doubling_all_reduce(c, std::span<float>(data));
        if (c.rank() == 0) std::cout << "halving and doubling  " << c.counts() << '\n';
        c.reset();
        recursive_doubling_all_reduce(c, std::span<float>(data));
        if (c.rank() == 0) std::cout << "recursive doubling    " << c.counts() << '\n';
    });
    // --8<-- [end:count]
    // What the page shows.
    const auto expect = [](auto&& reduce, std::int64_t messages, std::int64_t bytes) {
        run_ranks(8, [&](threads_communicator& world) {
            std::vector<float> data(100'000, 1.0f);
            counting_communicator c(world.split(0, world.rank()));
            reduce(c, std::span<float>(data));
            const auto& n = c.counts();
            require(n.messages == messages && n.rounds == messages && n.bytes == bytes, "rank ", c.rank(), ": ",
                    n.messages, " messages, ", n.bytes, " bytes, ", n.rounds, " rounds");
        });
    };
    expect([](auto& c, std::span<float> data) { ring_all_reduce(c, data); }, 14, 700'000);
    expect([](auto& c, std::span<float> data) { halving_doubling_all_reduce(c, data); }, 6, 700'000);
    expect([](auto& c, std::span<float> data) { recursive_doubling_all_reduce(c, data); }, 3, 1'200'000);
}

void predict() {
    // --8<-- [start:predict]
    const link_model network(20e-6, 1 / 1.25e9, 0);  // α = 20 µs, 10 Gbit/s, adding for nothing
    for (const double bytes : {1e3, 1e5, 1e7}) {
        std::printf("%8.0f kB:", bytes / 1e3);
        for (const auto algorithm : {all_reduce_algorithm::ring, all_reduce_algorithm::recursive_doubling,
                                     all_reduce_algorithm::halving_doubling})
            std::printf("  %s %.3f ms", name_of(algorithm), 1e3 * all_reduce_seconds(network, algorithm, bytes, 16));
        std::printf("\n");
    }
    // --8<-- [end:predict]
}

int main() {
    shift();
    count();
    predict();
    // What the page says about 1 MB on 16 ranks.
    const link_model network(20e-6, 1 / 1.25e9, 0);
    const double ring = all_reduce_seconds(network, all_reduce_algorithm::ring, 1e6, 16);
    require(std::abs(ring - (30 * 20e-6 + 1.875 * 1e6 / 1.25e9)) < 1e-9, "ring: ", ring);
}
