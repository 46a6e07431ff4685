#include "catch.hpp"

#include <cairn/core/memory.hpp>
#include <cairn/core/random.hpp>

#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace cairn {

using Catch::Matchers::Contains;

namespace {

memory_pool& host_pool = memory_pool::host();

/// Whether blocks come from one reserved range (not so under AddressSanitizer and with CAIRN_POOL=system): freeing and
/// asking again then gives the same address.
bool recycles() {
    void* first = host_pool.allocate(1 << 20, memory_category::workspace);
    host_pool.release(first, 1 << 20, memory_category::workspace);
    void* again = host_pool.allocate(1 << 20, memory_category::workspace);
    host_pool.release(again, 1 << 20, memory_category::workspace);
#if defined(__SANITIZE_ADDRESS__)
    return false;
#else
    return first == again;
#endif
}

}  // namespace

TEST_CASE("pool: blocks are aligned, distinct and writable", "[memory]") {
    std::vector<std::pair<unsigned char*, index_t>> blocks;
    for (const index_t bytes : {0, 1, 63, 64, 65, 1000, 4096, 1 << 20}) {
        auto* block = static_cast<unsigned char*>(host_pool.allocate(bytes, memory_category::workspace));
        CHECK(reinterpret_cast<std::uintptr_t>(block) % 64 == 0);
        std::memset(block, static_cast<int>(blocks.size()), static_cast<std::size_t>(bytes));
        blocks.emplace_back(block, bytes);
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
        index_t wrong = 0;
        for (index_t b = 0; b < blocks[i].second; ++b) wrong += blocks[i].first[b] != i;
        CHECK(wrong == 0);
        host_pool.release(blocks[i].first, blocks[i].second, memory_category::workspace);
    }
}

TEST_CASE("pool: live and peak bytes, by category and in total, in multiples of 64", "[memory]") {
    host_pool.reset_peaks();
    const auto live = host_pool.total().live;
    const auto gradients = host_pool.use_of(memory_category::gradients).live;
    void* a = host_pool.allocate(1000, memory_category::gradients);  // 1,024
    void* b = host_pool.allocate(1, memory_category::gradients);     // 64
    CHECK(host_pool.use_of(memory_category::gradients).live == gradients + 1088);
    host_pool.release(b, 1, memory_category::gradients);
    CHECK(host_pool.use_of(memory_category::gradients).live == gradients + 1024);
    CHECK(host_pool.use_of(memory_category::gradients).peak == gradients + 1088);
    CHECK(host_pool.total().live == live + 1024);
    CHECK(host_pool.total().peak == live + 1088);
    void* c = host_pool.allocate(128, memory_category::optimizer);
    CHECK(host_pool.use_of(memory_category::gradients).live == gradients + 1024);
    CHECK(host_pool.total().peak == live + 1152);
    host_pool.release(a, 1000, memory_category::gradients);
    host_pool.release(c, 128, memory_category::optimizer);
    host_pool.reset_peaks();
    CHECK(host_pool.total().peak == live);
    CHECK(host_pool.total().live == live);
    CHECK(host_pool.use_of(memory_category::gradients).peak == gradients);
}

TEST_CASE("pool: neighbours that are free become one range again, in any order of release", "[memory]") {
    if (!recycles()) return;  // each block is its own allocation then: nothing to merge
    constexpr index_t piece = 1 << 16;
    const std::vector<std::vector<int>> orders{{0, 1, 2, 3}, {3, 2, 1, 0}, {0, 2, 1, 3}, {1, 3, 2, 0}, {2, 0, 3, 1}};
    for (const auto& order : orders) {
        void* whole = host_pool.allocate(4 * piece, memory_category::workspace);
        host_pool.release(whole, 4 * piece, memory_category::workspace);
        std::vector<void*> blocks;
        for (int i = 0; i < 4; ++i) blocks.push_back(host_pool.allocate(piece, memory_category::workspace));
        for (const int i : order)
            host_pool.release(blocks[static_cast<std::size_t>(i)], piece, memory_category::workspace);
        void* again = host_pool.allocate(4 * piece, memory_category::workspace);
        CHECK(again == whole);
        host_pool.release(again, 4 * piece, memory_category::workspace);
    }
}

TEST_CASE("pool: the smallest hole that is large enough is filled first", "[memory]") {
    if (!recycles()) return;
    constexpr index_t kb = 1024;
    // Holes of 64 and 16 kB between blocks that stay.
    void* large = host_pool.allocate(64 * kb, memory_category::workspace);
    void* fence1 = host_pool.allocate(kb, memory_category::workspace);
    void* small = host_pool.allocate(16 * kb, memory_category::workspace);
    void* fence2 = host_pool.allocate(kb, memory_category::workspace);
    host_pool.release(large, 64 * kb, memory_category::workspace);
    host_pool.release(small, 16 * kb, memory_category::workspace);
    void* fits_small = host_pool.allocate(12 * kb, memory_category::workspace);
    void* fits_large = host_pool.allocate(20 * kb, memory_category::workspace);
    CHECK(fits_small == small);
    CHECK(fits_large == large);
    host_pool.release(fits_small, 12 * kb, memory_category::workspace);
    host_pool.release(fits_large, 20 * kb, memory_category::workspace);
    host_pool.release(fence1, kb, memory_category::workspace);
    host_pool.release(fence2, kb, memory_category::workspace);
}

TEST_CASE("pool: beyond the limit an error says what was asked, held and allowed; then work goes on", "[memory]") {
    const index_t limit = host_pool.limit();
    void* held = host_pool.allocate(640, memory_category::parameters);
    host_pool.set_limit(host_pool.total().live + 6400);
    CHECK_THROWS_WITH(host_pool.allocate(6464, memory_category::activations),
                      Contains("6464") && Contains("activations") && Contains("parameters") &&
                          Contains(std::to_string(host_pool.limit())) && Contains("CAIRN_MEMORY_LIMIT"));
    void* fits = host_pool.allocate(6400, memory_category::activations);
    CHECK_THROWS_AS(host_pool.allocate(1, memory_category::activations), error);
    host_pool.release(fits, 6400, memory_category::activations);
    host_pool.set_limit(limit);
    host_pool.release(held, 640, memory_category::parameters);
}

TEST_CASE("pool: sizes that make no sense are refused, not rounded into something small", "[memory]") {
    const auto live = host_pool.total().live;
    CHECK_THROWS_AS(host_pool.allocate(std::numeric_limits<index_t>::max(), memory_category::data), error);
    CHECK_THROWS_AS(host_pool.allocate(std::numeric_limits<index_t>::max() - 63, memory_category::data), error);
    CHECK_THROWS_AS(host_pool.allocate(-1, memory_category::data), error);
    CHECK_THROWS_AS(host_pool.allocate(std::numeric_limits<index_t>::min(), memory_category::data), error);
    CHECK(host_pool.total().live == live);
}

TEST_CASE("pool: trim gives pages back and the pool stays usable", "[memory]") {
    auto* kept = static_cast<unsigned char*>(host_pool.allocate(100'000, memory_category::workspace));
    void* freed = host_pool.allocate(1 << 24, memory_category::workspace);
    std::memset(kept, 7, 100'000);
    std::memset(freed, 8, 1 << 24);
    host_pool.release(freed, 1 << 24, memory_category::workspace);
    host_pool.trim();
    index_t wrong = 0;
    for (index_t i = 0; i < 100'000; ++i) wrong += kept[i] != 7;
    CHECK(wrong == 0);
    void* again = host_pool.allocate(1 << 24, memory_category::workspace);
    std::memset(again, 9, 1 << 24);
    host_pool.release(again, 1 << 24, memory_category::workspace);
    host_pool.release(kept, 100'000, memory_category::workspace);
}

TEST_CASE("pool: threads allocate and release at once, no block is handed out twice, the counters add up", "[memory]") {
    const auto live = host_pool.total().live;
    std::vector<std::thread> workers;
    std::vector<int> corrupted(4);
    for (std::uint32_t t = 0; t < 4; ++t)
        workers.emplace_back([t, &corrupted] {
            const random_stream random{.seed = 11, .stream = t};
            struct block {
                std::uint64_t* data;
                index_t bytes;
                std::uint64_t mark;
            };
            std::vector<block> mine;
            const auto drop = [&](std::size_t at) {
                const block b = mine[at];
                for (index_t i = 0; i < b.bytes / 8; ++i) corrupted[t] += b.data[i] != b.mark;
                host_pool.release(b.data, b.bytes, memory_category::workspace);
                mine[at] = mine.back();
                mine.pop_back();
            };
            for (std::uint64_t i = 0; i < 2000; ++i) {
                if (mine.size() < 8 || random.below(2, 3 * i) == 0) {
                    const auto bytes = static_cast<index_t>(8 + 8 * random.below(2000, 3 * i + 1));
                    auto* data = static_cast<std::uint64_t*>(host_pool.allocate(bytes, memory_category::workspace));
                    std::fill_n(data, bytes / 8, (std::uint64_t{t} << 32) | i);
                    mine.push_back({data, bytes, (std::uint64_t{t} << 32) | i});
                } else {
                    drop(static_cast<std::size_t>(random.below(mine.size(), 3 * i + 2)));
                }
            }
            while (!mine.empty()) drop(0);
        });
    for (std::thread& worker : workers) worker.join();
    for (const int c : corrupted) CHECK(c == 0);
    CHECK(host_pool.total().live == live);
}

}  // namespace cairn
