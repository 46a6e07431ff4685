// Ranks that are threads have memory pools of their own, as processes would.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>

#include <barrier>
#include <thread>
#include <vector>

namespace cairn {

TEST_CASE("ranks that are threads count their memory apart, and all of it adds up", "[memory]") {
    constexpr index_t unit = 64 * 1024;
    const index_t of_all = memory_pool::host_live(), of_process = memory_pool::host().total().live;
    std::barrier<> all_here(2);
    std::vector<tensor<std::uint8_t>> kept(2);
    std::vector<const memory_pool*> pools(2);
    run_ranks(2, [&](threads_communicator& c) {
        const auto r = static_cast<std::size_t>(c.rank());
        memory_pool& mine = memory_pool::host();
        pools[r] = &mine;
        const index_t wanted = unit * (c.rank() + 1);
        require(mine.total().live == 0, "a rank begins with ", mine.total().live, " bytes");
        { const tensor<std::uint8_t> more({3 * wanted}); }
        kept[r] = tensor<std::uint8_t>({wanted}, memory_category::optimizer);
        all_here.arrive_and_wait();
        require(mine.total().live == wanted, "live: ", mine.total().live);
        require(mine.total().peak == 3 * wanted, "peak: ", mine.total().peak);
        require(mine.use_of(memory_category::optimizer).peak == wanted, "peak of optimizer state");
        require(memory_pool::host_live() == of_all + 3 * unit, "both: ", memory_pool::host_live() - of_all);
        all_here.arrive_and_wait();
        // Threads that help a rank take its memory.
        tensor<std::uint8_t> helper, worker;
        std::thread(in_pool_of_caller([&] { helper = tensor<std::uint8_t>({unit}); })).join();
        set_threads(2);
        parallel_chunks(2, 1, [&](index_t chunk, index_t, index_t) {
            if (chunk == 1) worker = tensor<std::uint8_t>({unit});
        });
        require(mine.total().live == wanted + 2 * unit, "with helpers: ", mine.total().live);
    });
    CHECK(pools[0] != pools[1]);
    CHECK(pools[0] != &memory_pool::host());
    CHECK(memory_pool::host().total().live == of_process);
    CHECK(memory_pool::host_live() == of_all + 3 * unit);
    kept.clear();  // tensors outlive their rank
    CHECK(memory_pool::host_live() == of_all);
    run_ranks(2, [&](threads_communicator&) {
        require(memory_pool::host().total().peak == 0, "a pool that is used again begins at ",
                memory_pool::host().total().peak);
    });
}

TEST_CASE("the limit of the host's memory is that of all ranks together", "[memory]") {
    const index_t before = memory_pool::host().limit();
    memory_pool::host().set_limit(memory_pool::host_live() + 100'000);
    const std::string why = test::message_of([&] {
        const tensor<std::uint8_t> here({60'000});
        run_ranks(1, [&](threads_communicator&) { const tensor<std::uint8_t> more({60'000}); });
    });
    memory_pool::host().set_limit(before);
    CHECK(test::contains(why, "out of memory"));
}

TEST_CASE("each rank may have a limit of its own, and says so", "[memory]") {
    const auto both_take = [](index_t bytes) {
        return test::message_of([&] {
            run_ranks(2, {.memory_limit = 100'000}, [&](threads_communicator&) {
                const tensor<std::uint8_t> first({40'000}, memory_category::optimizer), second({bytes});
            });
        });
    };
    CHECK(both_take(59'000).empty());
    const std::string why = both_take(60'000);
    CHECK(test::contains(why, "60032 bytes asked for activations, 40000 held (optimizer 40000), 100000 allowed"));
    CHECK(test::contains(why, "more ranks"));
    run_ranks(2, [&](threads_communicator&) { const tensor<std::uint8_t> after({200'000}); });
}

}  // namespace cairn
