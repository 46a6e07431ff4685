#pragma once
// Difference of this rank's clock to rank 0's: each process counts from its own start, each machine has its own clock.
// A rank asks rank 0 for the time; the answer was given between request and reply. The fastest of several round trips
// counts (Cristian 1989).

#include <cairn/comm/communicator.hpp>
#include <cairn/core/clock.hpp>

#include <limits>
#include <span>

namespace cairn {

inline constexpr int clock_tag = user_tags + 13;

struct clock_difference {
    double seconds = 0;  // to be added to this rank's clock
    double error = 0;    // at most
};

/// Collective. `clock()`: seconds, of this rank.
template <Communicator C, class Clock = double (*)()>
clock_difference clock_difference_to_root(C& c, Clock clock = now) {
    constexpr int questions = 20;
    clock_difference best{.error = std::numeric_limits<double>::infinity()};
    for (int peer = 1; peer < c.size(); ++peer)  // one after another: a rank 0 that others keep busy answers late
        for (int i = 0; i < questions; ++i) {
            double told = 0;
            if (c.rank() == 0) {
                recv(c, std::span<double>(), peer, clock_tag);
                told = clock();
                send(c, std::span<const double>(&told, 1), peer, clock_tag);
            } else if (c.rank() == peer) {
                const double asked = clock();
                send(c, std::span<const double>(), 0, clock_tag);
                recv(c, std::span<double>(&told, 1), 0, clock_tag);
                const double half = (clock() - asked) / 2;
                if (half < best.error) best = {told - (asked + half), half};
            }
        }
    return c.rank() == 0 ? clock_difference{} : best;
}

}  // namespace cairn
