// Placements as literal tables, and what holds for all of them.

#include "catch.hpp"

#include <cairn/core/random.hpp>
#include <cairn/optim/precondition/kfac_assignment.hpp>

namespace cairn {

namespace {

// Costs n³: 1000 + 1000, 729 + 1, 512 + 8, 64 + 64, 27 + 1.
const std::vector<factor_sizes> layers{{10, 10}, {9, 1}, {8, 2}, {4, 4}, {3, 1}};
using table = std::vector<layer_place>;

}  // namespace

TEST_CASE("K-FAC assignment: literal tables on four ranks", "[kfac][placement]") {
    const kfac_assignment every(4, layers, {.grad_worker_fraction = 1});  // one column of four
    CHECK(every.rows() == 4);
    CHECK(every.layers() == table{{0, 0, 0}, {0, 1, 1}, {0, 2, 2}, {0, 3, 3}, {0, 3, 3}});
    CHECK(every.loads() == std::vector<double>{2000, 730, 520, 156});

    const kfac_assignment half(4, layers, {.grad_worker_fraction = 0.5});  // columns {0, 2} and {1, 3}
    CHECK(half.columns() == 2);
    CHECK(half.layers() == table{{0, 0, 0}, {1, 1, 1}, {1, 3, 3}, {1, 3, 3}, {1, 3, 3}});
    CHECK(half.gradient_workers(0) == std::vector<int>{0, 2});
    CHECK(half.gradient_workers(1) == std::vector<int>{1, 3});
    CHECK(half.source(0, 1) == 0);  // rank 1 is in the row of ranks 0 and 1
    CHECK(half.source(0, 3) == 2);
    CHECK(half.source(1, 2) == 3);
    CHECK(half.is_gradient_worker(1, 3));
    CHECK_FALSE(half.is_gradient_worker(1, 2));

    const kfac_assignment single(4, layers, {.grad_worker_fraction = 0.25});
    CHECK(single.layers() == table{{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {3, 3, 3}, {3, 3, 3}});
    for (int rank = 0; rank < 4; ++rank) CHECK(single.source(2, rank) == 2);
}

TEST_CASE("K-FAC assignment: factors of a layer apart, and by memory", "[kfac][placement]") {
    const kfac_assignment apart(2, {{10, 9}, {8, 10}}, {.grad_worker_fraction = 1, .colocate_factors = false});
    CHECK(apart.layers() == table{{0, 0, 1}, {0, 0, 1}});  // 1000 to 0, 729 to 1; 1000 to 1, 512 to 0
    const kfac_assignment by_memory(2, {{10, 1}, {7, 7}, {7, 1}},
                                    {.grad_worker_fraction = 0.5, .strategy = kfac_assignment_strategy::memory});
    CHECK(by_memory.layers() == table{{0, 0, 0}, {1, 1, 1}, {1, 1, 1}});  // 101; 98, 50
}

TEST_CASE("K-FAC assignment: every number of ranks and fraction, balanced within Graham's bound", "[kfac][placement]") {
    for (int ranks = 1; ranks <= 12; ++ranks)
        for (int workers = 1; workers <= ranks; ++workers) {
            if (ranks % workers) continue;
            std::vector<factor_sizes> many;
            const random_stream random{1, 2, static_cast<std::uint32_t>(ranks * 100 + workers)};
            double total = 0, largest = 0;
            for (std::uint64_t i = 0; i < 40; ++i) {
                many.push_back({1 + static_cast<index_t>(random.below(300, 2 * i)),
                                1 + static_cast<index_t>(random.below(300, 2 * i + 1))});
                const double cost = std::pow(double(many.back().a), 3) + std::pow(double(many.back().g), 3);
                total += cost;
                largest = std::max(largest, cost);
            }
            const kfac_assignment p(ranks, many, {.grad_worker_fraction = double(workers) / ranks});
            CHECK(p.rows() == workers);
            double sum = 0, most = 0;
            for (const double load : p.loads()) sum += load, most = std::max(most, load);
            CHECK(sum == Approx(total));
            CHECK(most <= total / ranks + largest);
            for (std::size_t l = 0; l < many.size(); ++l) {
                const auto columns = p.gradient_workers(l);
                CHECK(std::ranges::count(columns, p.layers()[l].a_worker) == 1);
                for (int rank = 0; rank < ranks; ++rank) {
                    CHECK(std::ranges::count(columns, p.source(l, rank)) == 1);
                    CHECK(p.row_of(p.source(l, rank)) == p.row_of(rank));
                    if (p.is_gradient_worker(l, rank)) CHECK(p.source(l, rank) == rank);
                }
            }
        }
}

TEST_CASE("K-FAC assignment: a fraction that does not fit names the nearest one", "[kfac][placement]") {
    CHECK_THROWS_WITH(kfac_assignment(6, layers, {.grad_worker_fraction = 0.6}),
                      Catch::Contains("3.6 gradient workers") && Catch::Contains("3/6 = 0.5"));
    CHECK_THROWS_WITH(kfac_assignment(4, layers, {.grad_worker_fraction = 0}), Catch::Contains("(0, 1]"));
    CHECK_THROWS_WITH(kfac_assignment(0, layers), Catch::Contains("0 ranks"));
}

}  // namespace cairn
