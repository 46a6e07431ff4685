#pragma once
// A barrier by dissemination (Hensgen, Finkel and Manber 1988): in round k each rank tells the rank 2^k further that it
// is here, and hears from the one 2^k before. After ⌈lg p⌉ rounds each has heard, through others, from all.
// Time ⌈lg p⌉ α.

#include <cairn/comm/communicator.hpp>

#include <span>

namespace cairn {

inline constexpr int barrier_tag = user_tags + 10;

/// Returns when all ranks are in it.
template <Communicator C>
void barrier(C& c) {
    [[maybe_unused]] const auto scope = enter(c, {"barrier", "nothing"});
    const int p = c.size(), me = c.rank();
    for (int distance = 1; distance < p; distance *= 2)
        sendrecv(c, std::span<const std::byte>{}, (me + distance) % p, std::span<std::byte>{}, (me + p - distance) % p,
                 barrier_tag);
}

}  // namespace cairn
