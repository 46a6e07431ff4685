// The counters of work: nothing when off, exact when on, from any thread.
#include "catch.hpp"

#include <cairn/core/flop_counter.hpp>

#include <thread>
#include <vector>

TEST_CASE("work: counts only while a scope lives", "[flop_counter]") {
    namespace flop_counter = cairn::flop_counter;
    flop_counter::count(100, 100);
    {
        const flop_counter::scope counting;
        CHECK(flop_counter::total().flops == 0);
        flop_counter::count(5e9, 7);
        flop_counter::count(2, 1);
        CHECK(flop_counter::total().flops == 5'000'000'002);
        CHECK(flop_counter::total().bytes == 8);
        flop_counter::reset();
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([] {
                for (int i = 0; i < 1000; ++i) flop_counter::count(3, 2);
            });
        for (auto& t : threads) t.join();
        CHECK(flop_counter::total().flops == 12000);
        CHECK(flop_counter::total().bytes == 8000);
    }
    CHECK_FALSE(flop_counter::enabled());
    flop_counter::count(1, 1);
    CHECK(flop_counter::total().flops == 12000);
}
