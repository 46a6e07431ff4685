// Clocks of ranks compared with rank 0's, where the difference is known: ranks are threads, each adds a number of its
// own.

#include "catch.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/clock_difference.hpp>
#include <cairn/comm/threads.hpp>

#include <cmath>

namespace cairn {

TEST_CASE("clock difference: that which was added to the clock, to the error that is told", "[comm][clock]") {
    for (const int ranks : {1, 2, 5})
        run_ranks(ranks, [](threads_communicator& c) {
            const auto added = [&] { return 1000.0 * c.rank() - 3; };
            const clock_difference d = clock_difference_to_root(c, [&] { return now() + added(); });
            // Of two clocks that are one, plus a constant: wrong by half of a question's time at most, and by rounding.
            const double wrong = std::abs(d.seconds + 1000.0 * c.rank());
            require(wrong <= d.error + 1e-9, "rank ", c.rank(), ": wrong by ", wrong, " s, more than ", d.error);
            require(d.error < 1, "rank ", c.rank(), ": 20 questions took more than 2 s each");
        });
}

TEST_CASE("clock difference: of a communicator of any kind", "[comm][clock]") {
    run_ranks(3, [](threads_communicator& c) {
        any_communicator any(c.split(0, c.rank()));
        const clock_difference d = clock_difference_to_root(any);
        require(std::abs(d.seconds) <= d.error + 1e-9, "rank ", c.rank(), ": ", d.seconds, " s beside its own clock");
    });
}

}  // namespace cairn
