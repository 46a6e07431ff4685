// All-reduce over nodes of equal and of different sizes; the barrier.

#include "collectives/laws.hpp"

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/self.hpp>
#include <cairn/comm/threads.hpp>

#include "catch.hpp"

#include <atomic>

namespace cairn {

TEST_CASE("hierarchical all-reduce: nodes of any sizes", "[collectives]") {
    for (int p = 2; p <= 9; ++p)
        for (const int per_node : {1, 2, 3, 4})
            for (const index_t count : {index_t{0}, index_t{1}, index_t{7}, index_t{5000}}) {
                const laws::oracle<float> expected(p, count, reduction::sum);
                std::vector<std::vector<float>> results(static_cast<std::size_t>(p));
                run_ranks(p, {.ranks_per_node = per_node}, [&](threads_communicator& c) {
                    node_groups<threads_communicator> groups(c);
                    auto& data = results[static_cast<std::size_t>(c.rank())] = laws::data_of<float>(c.rank(), count);
                    all_reduce(c, std::span<float>(data), {.algorithm = all_reduce_algorithm::hierarchical}, &groups);
                    const int last = p % per_node;
                    require(groups.width() == (last && p > per_node ? last : std::min(p, per_node)), "width ",
                            groups.width(), " of ", p, " ranks, ", per_node, " a node");
                    require(groups.across().size() == (groups.owns() ? (p + per_node - 1) / per_node : 1), "across");
                });
                expected.check(results[0], {0, count}, concat(p, " ranks, ", per_node, " a node"));
                for (const auto& result : results) CHECK(laws::same_bits<float>(result, results[0]));
            }
}

TEST_CASE("hierarchical all-reduce: nodes that are named by hand, and any algorithm between them", "[collectives]") {
    const laws::oracle<double> expected(7, 1001, reduction::max);
    run_ranks(7, [&](threads_communicator& c) {
        node_groups<threads_communicator> groups(c, c.split(c.rank() % 2, -c.rank()));  // 4 and 3 ranks, backwards
        std::vector<double> data = laws::data_of<double>(c.rank(), 1001);
        int calls = 0;
        hierarchical_all_reduce(groups, std::span<double>(data), reduction::max,
                                [&](threads_communicator& between, std::span<double> part, reduction r) {
                                    ++calls;
                                    require(between.size() == 2, "ranks between nodes: ", between.size());
                                    tree_all_reduce(between, part, r);
                                });
        require(calls == (groups.owns() ? 1 : 0), "calls: ", calls);
        expected.check(data, {0, 1001}, "named nodes");
    });
}

TEST_CASE("hierarchical all-reduce: behind any communicator", "[collectives]") {
    const laws::oracle<float> expected(4, 100, reduction::sum);
    run_ranks(4, {.ranks_per_node = 2}, [&](threads_communicator& threads) {
        any_communicator c(std::move(threads));
        std::vector<float> data = laws::data_of<float>(c.rank(), 100);
        all_reduce(c, std::span<float>(data), {.algorithm = all_reduce_algorithm::hierarchical});
        expected.check(data, {0, 100}, "any");
    });
}

TEST_CASE("barrier: no rank leaves before the last one arrives", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        std::atomic<int> there = 0;
        run_ranks(p, [&](threads_communicator& c) {
            for (int round = 1; round <= 20; ++round) {
                ++there;
                barrier(c);
                require(there >= round * p, "rank ", c.rank(), " left the barrier when ", there.load(), " were there");
                barrier(c);
            }
        });
    }
    self_communicator alone;
    barrier(alone);
}

}  // namespace cairn
