#include "device/cuda/captured_graph_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"

#include <atomic>
#include <thread>
#include <vector>

namespace cairn {

using gpu = emulated_gpu;

static_assert(GraphCapture<gpu> && !GraphCapture<cpu>);

static detail::range_of_step endless(char* begin, index_t used = 0) {
    return {{begin, detail::pool_in_ranges::endless}, used};
}

TEST_CASE("captured graph: recorded launches compute what plain ones do, and leave other tensors alone", "[cuda]") {
    const index_t before = gpu::graph::launched;
    captured_graph_laws::same_results<gpu>();
    CHECK(gpu::graph::launched == before + 6);
}

TEST_CASE("captured graph: steps of different sizes take turns in one block", "[cuda]") {
    captured_graph_laws::shared_memory<gpu>();
}

TEST_CASE("captured graph: what has to be waited for runs as it is", "[cuda]") {
    captured_graph_laws::waiting_is_refused<gpu>();
}

TEST_CASE("captured graph: what stays among a step's blocks costs the recorded step no second memory", "[cuda]") {
    captured_graph_laws::around_what_stays<gpu>();
}

TEST_CASE("captured graph: memory is found beside a thread that takes and returns some of the same pool", "[cuda]") {
    std::vector<memory_request> requests;
    gpu::memory().record_to(&requests);
    { tensor<float, gpu> a({1000}), b({3000}); }
    gpu::memory().record_to(nullptr);
    std::atomic<bool> done = false;
    std::thread beside([&] {
        while (!done) tensor<float, gpu> some({2000});
    });
    int failed = 0;
    for (int i = 0; i < 50000; ++i) try {
            const detail::memory_of_step its(requests, gpu::memory());
            failed += its.ranges().empty();
        } catch (const error&) {
            ++failed;
        }
    done = true;
    beside.join();
    CHECK(failed == 0);
}

TEST_CASE("captured graph: the memory has the size that the requests need", "[cuda]") {
    const auto needed = [](auto&& f) {
        std::vector<memory_request> requests;
        gpu::memory().record_to(&requests);
        f();
        gpu::memory().record_to(nullptr);
        detail::pool_in_ranges addresses({endless(reinterpret_cast<char*>(std::uintptr_t{1} << 44))}, true);
        CHECK(detail::meet_again(requests, addresses));
        return addresses.ranges()[0].used;
    };
    CHECK(needed([] {}) == 0);
    CHECK(needed([] { tensor<float, gpu> a({16}), b({17}); }) == 64 + 128);
    CHECK(needed([] {
              for (int i = 0; i < 3; ++i) tensor<float, gpu> a({16});
          }) == 64);
    // Requests for which a pool that ends where they end would place the third one elsewhere, and have no room for the
    // last.
    CHECK(needed([] {
              std::array<tensor<float, gpu>, 5> t;
              const auto take = [&](std::size_t i, index_t blocks) { t[i] = tensor<float, gpu>({16 * blocks}); };
              take(0, 4), take(1, 1), t[0].reset(), take(2, 1), take(3, 3), take(4, 2);
          }) == 64 * 7);
    tensor<float, gpu> older({64});
    CHECK(needed([&] { older.reset(); }) == 0);  // what was there before is not asked for again
}

TEST_CASE("captured graph: a block deals out as the endless pool does in which its size was found", "[cuda]") {
    alignas(64) std::array<char, 64 * 7> memory;
    detail::pool_in_ranges pool({endless(memory.data(), 64 * 7)});
    const auto take = [&](index_t blocks) { return pool.allocate(64 * blocks, memory_category::workspace); };
    void* const a = take(4);
    void* const b = take(1);
    pool.release(a, 64 * 4, memory_category::workspace);
    CHECK(take(1) == a);
    take(3);
    CHECK(take(2) == memory.data() + 64 * 5);
    CHECK_THROWS_WITH(take(1), Catch::Contains("out of memory of a recorded step"));
    pool.release(a, 64, memory_category::workspace);
    pool.release(b, 64, memory_category::workspace);
    CHECK_THROWS_WITH(take(2), Catch::Contains("out of memory of a recorded step"));  // two holes of one
}

}  // namespace cairn
