// Code of course/collectives.md. Runs on four ranks that are threads; prints what the page says.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/threads.hpp>

#include <cstdio>
#include <vector>

using namespace cairn;

// [naive]
// Everyone sends everything to rank 0, which adds and sends back.
template <Communicator C>
void naive_all_reduce(C& c, std::span<float> data) {
    std::vector<float> room(data.size());
    if (c.rank() == 0) {
        for (int peer = 1; peer < c.size(); ++peer) {
            receive(c, std::span<float>(room), peer, 1);
            combine(c, data, std::span<const float>(room));
        }
        for (int peer = 1; peer < c.size(); ++peer) send(c, data, peer, 2);
    } else {
        send(c, data, 0, 1);
        receive(c, data, 0, 2);
    }
}
// [naive]

// [ring]
// Part (r - s) goes to the right while part (r - s - 1) comes from the left and is added; then the sums go round.
template <Communicator C>
void my_ring(C& c, std::span<float> data) {
    const int p = c.size(), me = c.rank(), left = (me + p - 1) % p, right = (me + 1) % p;
    const auto part = [&](int i) {
        return subspan(data, shard_of(static_cast<cairn::index>(data.size()), p, (i % p + p) % p));
    };
    std::vector<float> room(data.size());
    for (int s = 0; s < p - 1; ++s) {
        const std::span<float> got = std::span<float>(room).first(part(me - s - 1).size());
        send_receive(c, part(me - s), right, got, left, 3);
        combine(c, part(me - s - 1), std::span<const float>(got));
    }
    for (int s = 0; s < p - 1; ++s) send_receive(c, part(me + 1 - s), right, part(me - s), left, 4);
}
// [ring]

int main() {
    // [run]
    run_ranks(4, [](threads_communicator& c) {
        std::vector<float> data(1000, static_cast<float>(c.rank() + 1));
        my_ring(c, std::span<float>(data));  // 1 + 2 + 3 + 4 on every rank
        if (c.rank() == 0) std::printf("ring: %g\n", data[0]);
    });
    // [run]
    run_ranks(4, [](threads_communicator& c) {
        std::vector<float> a(1003, 1.5f), b = a, d = a;
        naive_all_reduce(c, std::span<float>(a));
        my_ring(c, std::span<float>(b));
        all_reduce(c, std::span<float>(d));
        require(a == b && a == d, "they differ");
    });
}
