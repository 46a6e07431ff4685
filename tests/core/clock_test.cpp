#include "catch.hpp"

#include <cairn/core/clock.hpp>

#include <thread>

TEST_CASE("clock: never goes back and measures a pause", "[clock]") {
    double last = cairn::now();
    CHECK(last >= 0);
    for (int i = 0; i < 1000; ++i) {
        const double t = cairn::now();
        if (t < last) FAIL("went back from " << last << " to " << t);
        last = t;
    }
    cairn::stopwatch watch;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    CHECK(watch.seconds() >= 0.020);
    const double before = cairn::now();
    CHECK(watch.restart() >= 0.020);
    const double since = watch.seconds();
    CHECK(since >= 0);
    CHECK(since <= cairn::now() - before);
}
