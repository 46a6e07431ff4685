// The counters of work: nothing when off, exact when on, from any thread.
#include "catch.hpp"

#include <cairn/core/work.hpp>

#include <thread>
#include <vector>

TEST_CASE("work: counts only while a scope lives", "[work]") {
    namespace work = cairn::work;
    work::count(100, 100);
    {
        const work::scope counting;
        CHECK(work::total().flops == 0);
        work::count(5e9, 7);
        work::count(2, 1);
        CHECK(work::total().flops == 5'000'000'002);
        CHECK(work::total().bytes == 8);
        work::reset();
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t)
            threads.emplace_back([] {
                for (int i = 0; i < 1000; ++i) work::count(3, 2);
            });
        for (auto& t : threads) t.join();
        CHECK(work::total().flops == 12000);
        CHECK(work::total().bytes == 8000);
    }
    CHECK_FALSE(work::enabled());
    work::count(1, 1);
    CHECK(work::total().flops == 12000);
}
