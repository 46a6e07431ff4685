// The tests that grade beside the public ones.

#include "../tests/algorithms.hpp"

TEST_CASE("ring: any number of ranks and elements") {
    for (int p = 1; p <= 9; ++p)
        for (const int count : {0, 1, p - 1, p, p + 1, 1000 + lab::number(1, 40, 1)}) {
            const auto n = static_cast<std::size_t>(std::max(count, 0));
            const auto all = lab::ring(p, n, 100 + static_cast<std::uint32_t>(p));
            INFO(lab::text(p, "rank") << ", " << lab::text(n, "element"));
            REQUIRE(all.fault_of_sums() == "");
            for (const auto& counts : all.counts) CHECK(counts.messages <= 2 * (p - 1));
            CHECK(all.fault_of_bytes(lab::ring_bytes) == "");
        }
}

TEST_CASE("ring: the same bits on every rank and in every run") {
    const int p = lab::number(3, 7, 2);
    const auto all = lab::ring(p, 5000, 200), again = lab::ring(p, 5000, 200);
    INFO(p << " ranks");
    REQUIRE(all.fault_of_sums() == "");
    CHECK(lab::disagreement(all.after) == "");
    CHECK(again.after == all.after);
    const auto other = lab::ring(p, 5000, 250);  // as many elements, other values
    INFO("the second array");
    CHECK(other.fault_of_sums() == "");
}

TEST_CASE("halving and doubling: rounds grow with the logarithm") {
    for (const int p : {2, 4, 8}) {
        const std::size_t n = 8192;
        int steps = 0;
        while (1 << steps < p) ++steps;
        const auto all = lab::halving(p, n, 300);
        INFO(p << " ranks");
        REQUIRE(all.fault_of_sums() == "");
        for (const auto& counts : all.counts) {
            CHECK(counts.messages == 2 * steps);
            CHECK(counts.rounds == 2 * steps);
            CHECK(counts.bytes ==
                  2 * (p - 1) * static_cast<std::int64_t>(n / static_cast<std::size_t>(p) * sizeof(float)));
        }
        const auto odd = static_cast<std::size_t>(2 * lab::number(50, 500, 5) + 1);
        CHECK(lab::halving(p, odd, 350).fault_of_bytes(lab::halving_bytes) == "");
    }
}

TEST_CASE("halving and doubling: rank counts that are no power of two") {
    for (const int p : {3, 5, 6, 7, 9})
        for (const int count : {0, 1, 7, 1000 + lab::number(1, 40, 3)}) {
            const auto all = lab::halving(p, static_cast<std::size_t>(count), 400 + static_cast<std::uint32_t>(p));
            INFO(p << " ranks, " << lab::text(count, "element"));
            REQUIRE(all.fault_of_sums() == "");
            CHECK(lab::disagreement(all.after) == "");
            CHECK(all.fault_of_bytes(lab::halving_bytes) == "");
        }
}

TEST_CASE("cost: the cheaper algorithm is chosen") {
    const lab::link l{1e-5, 1e-9, 1e-10};
    CHECK(lab::cheaper(8, 1e3, l) == "halving and doubling");  // few bytes: fewer messages win
    CHECK(lab::cheaper(6, 1e9, l) == "ring");                  // six ranks: two more messages of all bytes
    CHECK(lab::cheaper(6, 8, l) == "halving and doubling");
    const lab::link exact{0x1p-17, 0x1p-30, 0x1p-33};  // nothing is rounded
    CHECK(lab::cheaper(2, 0x1p20, exact) == "ring");   // equal
    const auto drawn = lab::numbers<double>(4, 4);
    const auto [alpha, beta, gamma] = std::tuple(1e-5 * (2 + drawn[0]), 1e-9 * (2 + drawn[1]), 1e-10 * (2 + drawn[2]));
    const lab::link other{alpha, beta, gamma};
    const double n = 1e6 * (2 + drawn[3]);
    CHECK(lab::ring_seconds(6, n, other) == Approx(10 * alpha + n * 5 / 3 * beta + n * 5 / 6 * gamma).epsilon(1e-12));
    CHECK(lab::halving_seconds(6, n, other) == Approx(6 * alpha + n * 3.5 * beta + n * 1.75 * gamma).epsilon(1e-12));
    CHECK(lab::halving_seconds(1, n, l) == 0);
}

TEST_CASE("buckets: as few messages as the size allows, last tensors first") {
    // Limit of 100 elements, from the last: {40, 60}, {100}, {250}, {30, 20}: four buckets, of 100, 100, 250 and 50.
    const std::vector<std::size_t> sizes{20, 30, 250, 100, 60, 40};
    const int p = 4;
    const auto all = lab::buckets(p, sizes, 100, 500);
    REQUIRE(all.fault_of_means() == "");
    for (const auto& counts : all.counts) CHECK(counts.messages == 4 * 2 * (p - 1));
}
