// One line a kernel: who listens hears of the outermost call, once.

#include "catch.hpp"

#include <cairn/core/for_each.hpp>
#include <cairn/core/kernel_call.hpp>
#include <cairn/core/phantom_rank.hpp>
#include <cairn/core/thread_rooms.hpp>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

using namespace cairn;

TEST_CASE("a kernel that calls others is counted alone") {
    const flop_counter::scope counting;
    {
        const kernel_call outer("layer", "f32", 10, 100, {2, 3});
        const kernel_call inner("gemm", "f32", 7, 70, {2, 3, 4});
    }
    { const kernel_call next("gemm", "f32", 1, 2, {}); }
    CHECK(flop_counter::total().flops == 11);
    CHECK(flop_counter::total().bytes == 102);
}

TEST_CASE("kernels are measured where somebody measures, and charged on a phantom rank") {
    std::vector<std::string> heard;
    on_measured_kernel = [&](const kernel_work& w, double seconds) {
        heard.push_back(concat(w.kind, ' ', w.extents, ' ', w.shape[1], ' ', seconds >= 0));
    };
    {
        const kernel_call outer("layer", "f32", 10, 100, {2, 3});
        const kernel_call inner("gemm", "f32", 7, 70, {2, 3, 4});
    }
    on_measured_kernel = nullptr;
    { const kernel_call unheard("gemm", "f32", 1, 2, {}); }
    CHECK(heard == std::vector<std::string>{"layer 2 3 1"});

    phantom_range::reserve(false);
    counted_machine machine;
    {
        const phantom_rank here(machine);
        const kernel_call call("gemm", "f32", 5, 6, {1});
    }
    { const kernel_call real("gemm", "f32", 1, 2, {}); }
    CHECK(machine.total().calls == 1);
    CHECK(machine.kinds().at("gemm").flops == 5);
}

TEST_CASE("an elementwise kernel is called by its functor's name") {
    std::vector<std::string> kinds;
    on_measured_kernel = [&](const kernel_work& work, double) { kinds.emplace_back(work.kind); };
    float x[3] = {};
    for_each(cpu{}, 3, functors::times<float>{2}, x);
    for_each(cpu{}, 3, functors::add{}, x, x);
    for_each(
        cpu{}, 3, [](float& v) { v = 1; }, x);
    on_measured_kernel = nullptr;
    CHECK(kinds == std::vector<std::string>{"times", "add", "elementwise"});
}

TEST_CASE("a phantom rank's large blocks are addresses, its small ones are real and zero") {
    phantom_range::reserve(false);  // who touches it dies
    counted_machine machine;
    phantom_rank here(machine);
    auto large = tensor<float>::filled({1024}, 1.0f), copy = large.clone();
    const tensor<float> small({1000});
    CHECK(phantom_range::holds(large.data()));
    CHECK(phantom_range::holds(copy.data()));
    CHECK_FALSE(phantom_range::holds(small.data()));
    CHECK(small[0] == 0);
    CHECK(here.memory().total().live == 2 * 4096 + 4032);
    int bodies = 0;
    parallel_for(10, 1, [&](index_t, index_t) { ++bodies; });
    CHECK(bodies == 0);
    CHECK(parallel_fold(
              index_t{10}, 1, 7, [](index_t, index_t) { return 1; }, [](int& a, int b) { a = std::min(a, b); }) == 7);
    CHECK(here.memory().total().peak == 2 * 4096 + 4032);
}

TEST_CASE("each thread of a loop has a room of its own, taken before the loop") {
    const threads_for_now four(4);
    const index_t before = memory_pool::host().total().live;
    thread_rooms<double> rooms(5);
    CHECK(memory_pool::host().total().live - before == 4 * 64);
    std::vector<std::pair<int, const double*>> taken(64);
    parallel_for(64, 1, [&](index_t begin, index_t) {
        double* const mine = rooms.here();
        taken[static_cast<std::size_t>(begin)] = {thread_number(), mine};
        for (int k = 0; k < 5; ++k) mine[k] = static_cast<double>(begin);
        for (int k = 0; k < 5; ++k)
            if (mine[k] != static_cast<double>(begin)) fail("two threads in one room");
    });
    for (const auto& [thread, room] : taken)
        for (const auto& [other, other_room] : taken) CHECK((thread == other) == (room == other_room));
    thread_rooms<double> one(5, false);
    CHECK(memory_pool::host().total().live - before == 5 * 64);
}
