// Code of course/collectives.md. Runs on four ranks that are threads; prints what the page says.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/ring.hpp>
#include <cairn/comm/threads.hpp>

#include <cstdio>
#include <vector>

using namespace cairn;

// --8<-- [start:naive]
// Everyone sends everything to rank 0, which adds and sends back.
template <Communicator C>
void naive_all_reduce(C& c, std::span<float> data) {
    std::vector<float> room(data.size());
    if (c.rank() == 0) {
        for (int peer = 1; peer < c.size(); ++peer) {
            recv(c, std::span<float>(room), peer, 1);
            reduce_local(c, data, std::span<const float>(room));
        }
        for (int peer = 1; peer < c.size(); ++peer) send(c, data, peer, 2);
    } else {
        send(c, data, 0, 1);
        recv(c, data, 0, 2);
    }
}
// --8<-- [end:naive]

int main() {
    // --8<-- [start:run]
    run_ranks(4, [](threads_communicator& c) {
        std::vector<float> data(1000, static_cast<float>(c.rank() + 1));
        ring_all_reduce(c, std::span<float>(data));  // 1 + 2 + 3 + 4 on every rank
        if (c.rank() == 0) std::printf("ring: %g\n", data[0]);
    });
    // --8<-- [end:run]
    run_ranks(4, [](threads_communicator& c) {
        std::vector<float> a(1003, 1.5f), b = a, d = a;
        naive_all_reduce(c, std::span<float>(a));
        ring_all_reduce(c, std::span<float>(b));
        all_reduce(c, std::span<float>(d));
        require(a == b && a == d, "they differ");
    });
}
