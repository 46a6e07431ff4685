#pragma once
// Waiting for a rank that computes for minutes, beyond the time limit of a message: it measures kernels, decomposes a
// large matrix, or writes to a slow disk, while the others have nothing to do.

#include <cairn/comm/communicator.hpp>
#include <cairn/core/clock.hpp>

#include <chrono>
#include <span>
#include <thread>

namespace cairn {

namespace detail {

inline constexpr int wait_tag = max_tag - 3;

// No enter(): the comparison of the ranks' calls has a shorter limit.
template <Communicator C>
void wait_for_word_of(C& c, int from, double limit) {
    char token = 0;
    auto arrival = irecv(c, std::span<char>(&token, 1), from, wait_tag);
    if (on_phantom_rank()) return arrival.wait();  // where a rank that never comes is known
    const stopwatch waited;
    while (!arrival.test()) {
        require(waited.seconds() < limit, "rank ", c.rank(), " waited ", limit, " s for rank ", from,
                " to come back from its own work: is it alive?");
        std::this_thread::sleep_for(std::chrono::microseconds(waited.seconds() < 0.01 ? 50 : 1000));
    }
}

}  // namespace detail

/// Collective. Returns once rank `root` is here too. A rank that is killed ends the job as always; after `limit`
/// seconds throws on the waiting ranks.
template <Communicator C>
void wait_for(C& c, int root, double limit = 3600) {
    if (c.rank() != root) return detail::wait_for_word_of(c, root, limit);
    const char here = 0;
    for (int r = 0; r < c.size(); ++r)
        if (r != root) send(c, std::span<const char>(&here, 1), r, detail::wait_tag);
}

/// Collective. Returns once all ranks are here; the same otherwise.
template <Communicator C>
void wait_for_all(C& c, double limit = 3600) {
    const char here = 0;
    if (c.rank() != 0)
        send(c, std::span<const char>(&here, 1), 0, detail::wait_tag);
    else
        for (int r = 1; r < c.size(); ++r) detail::wait_for_word_of(c, r, limit);
    wait_for(c, 0, limit);
}

}  // namespace cairn
