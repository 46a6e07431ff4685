#include "catch.hpp"

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

TEST_CASE("threads: at least one", "[parallel]") {
    CHECK(threads() >= 1);
    CHECK_THROWS_WITH(set_threads(0), Catch::Matchers::Contains("0"));
    CHECK_THROWS_AS(set_threads(-2), error);
    const threads_for_now three(3);
#ifdef _OPENMP
    CHECK(threads() == 3);
#endif
}

TEST_CASE("parallel_chunks: each item once, in pieces that depend on the grain alone", "[parallel]") {
    for (const int threads : {1, 2, 5})
        for (const index_t n : {0, 1, 7, 64, 65, 1000})
            for (const index_t grain : {-1, 0, 1, 7, 64, 5000}) {
                const threads_for_now set(threads);
                const index_t step = std::max<index_t>(grain, 1);
                std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
                std::atomic<int> misplaced{0}, chunks{0};
                parallel_chunks(n, grain, [&](index_t chunk, index_t begin, index_t end) {
                    ++chunks;
                    if (begin != chunk * step || end != std::min(n, begin + step)) ++misplaced;
                    for (index_t i = begin; i < end; ++i) ++visits[static_cast<std::size_t>(i)];
                });
                int wrong = 0;
                for (const auto& v : visits) wrong += v != 1;
                CAPTURE(threads, n, grain);
                CHECK(wrong == 0);
                CHECK(misplaced == 0);
                CHECK(chunks == (n + step - 1) / step);
            }
}

TEST_CASE("parallel_for: an exception of a body reaches the caller, whichever thread it was thrown on", "[parallel]") {
    for (const int threads : {1, 2, 4})
        for (const index_t bad : {0, 50, 99}) {
            const threads_for_now set(threads);
            const auto run = [&] {
                parallel_for(100, 1, [&](index_t begin, index_t) {
                    if (begin == bad) fail("item ", begin);
                });
            };
            CHECK_THROWS_WITH(run(), "item " + std::to_string(bad));
        }
    // And the threads are fit for work afterwards.
    std::atomic<index_t> sum{0};
    parallel_for(100, 1, [&](index_t begin, index_t) { sum += begin; });
    CHECK(sum == 4950);
}

TEST_CASE("parallel_for: many failures at once are one exception", "[parallel]") {
    const threads_for_now set(4);
    CHECK_THROWS_AS(parallel_for(1000, 1, [](index_t, index_t) { fail("all"); }), error);
}

TEST_CASE("parallel_tasks: each task once, and a failure reaches the caller", "[parallel]") {
    for (const index_t n : {0, 1, 2, 77}) {
        std::vector<std::atomic<int>> visits(static_cast<std::size_t>(n));
        parallel_tasks(n, [&](index_t i) { ++visits[static_cast<std::size_t>(i)]; });
        CHECK(std::all_of(visits.begin(), visits.end(), [](const auto& v) { return v == 1; }));
    }
    CHECK_THROWS_AS(parallel_tasks(9, [](index_t i) { require(i != 5, "the fifth"); }), error);
}

TEST_CASE("parallel_for: may be called from within itself", "[parallel]") {
    std::vector<std::atomic<int>> visits(64);
    parallel_for(8, 1, [&](index_t outer, index_t) {
        parallel_for(8, 1, [&](index_t inner, index_t) { ++visits[static_cast<std::size_t>(outer * 8 + inner)]; });
    });
    for (const auto& v : visits) CHECK(v == 1);
}

TEST_CASE("parallel_sum: the same bits on any number of threads", "[parallel]") {
    const index_t n = 100'003;
    const random_stream random{.seed = 3};
    std::vector<float> x(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(random.normal(i) * 1e3);
    const auto sum = [&](int threads) {
        const threads_for_now set(threads);
        return parallel_sum<float>(n, 1000, [&](index_t begin, index_t end) {
            float part = 0;
            for (index_t i = begin; i < end; ++i) part += x[static_cast<std::size_t>(i)];
            return part;
        });
    };
    const auto expected = std::bit_cast<std::uint32_t>(sum(1));
    for (const int threads : {1, 2, 3, 4, 7})
        for (int repeat = 0; repeat < 5; ++repeat) CHECK(std::bit_cast<std::uint32_t>(sum(threads)) == expected);
    CHECK(parallel_sum<double>(0, 10, [](index_t, index_t) { return 1.0; }) == 0.0);
}

TEST_CASE("thread_number: below threads(), none twice at the same time", "[parallel]") {
    const threads_for_now set(4);
    std::vector<std::atomic<int>> inside(4);
    std::atomic<int> wrong{0};
    parallel_for(200, 1, [&](index_t, index_t) {
        const int t = thread_number();
        if (t < 0 || t >= 4) {
            ++wrong;
            return;
        }
        if (inside[static_cast<std::size_t>(t)]++ != 0) ++wrong;
        --inside[static_cast<std::size_t>(t)];
    });
    CHECK(wrong == 0);
}

}  // namespace cairn
