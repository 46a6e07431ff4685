// The tests that students have.

#include "algorithms.hpp"

TEST_CASE("ring: every rank has the sum") {
    for (const int p : {1, 2, 3, 4})
        for (const std::size_t n : {1000, 7, 1, 0}) {
            const auto all = lab::ring(p, n, 10);
            INFO(lab::text(p, "rank") << ", " << lab::text(n, "element"));
            REQUIRE(all.fault_of_sums() == "");
        }
}

TEST_CASE("ring: messages and bytes are the fewest") {
    for (const int p : {2, 4, 8}) {
        const std::size_t n = 4096;
        const auto all = lab::ring(p, n, 20);
        INFO(lab::text(p, "rank") << ", " << lab::text(n, "element"));
        REQUIRE(all.fault_of_sums() == "");
        for (const auto& counts : all.counts) {
            CHECK(counts.messages == 2 * (p - 1));
            CHECK(counts.bytes ==
                  2 * (p - 1) * static_cast<std::int64_t>(n / static_cast<std::size_t>(p) * sizeof(float)));
            CHECK(counts.rounds <= 2 * (p - 1));
        }
    }
    for (const std::size_t n : {10, 3}) CHECK(lab::ring(4, n, 25).fault_of_bytes(lab::ring_bytes) == "");
}

TEST_CASE("halving and doubling: every rank has the sum and sends its halves") {
    for (const int p : {1, 2, 4, 8})
        for (const std::size_t n : {1000, 7, 1, 0}) {
            const auto all = lab::halving(p, n, 30);
            INFO(lab::text(p, "rank") << ", " << lab::text(n, "element"));
            REQUIRE(all.fault_of_sums() == "");
            REQUIRE(all.fault_of_bytes(lab::halving_bytes) == "");
        }
}

TEST_CASE("cost: predictions of both algorithms") {
    const lab::link l{2e-6, 1e-9, 1e-10};  // α, β, γ
    // Four ranks, 4 MB: 6 messages, 6 MB sent, 3 MB added.
    CHECK(lab::ring_seconds(4, 4e6, l) == Approx(6 * 2e-6 + 6e6 * 1e-9 + 3e6 * 1e-10).epsilon(1e-12));
    // 4 messages instead.
    CHECK(lab::halving_seconds(4, 4e6, l) == Approx(4 * 2e-6 + 6e6 * 1e-9 + 3e6 * 1e-10).epsilon(1e-12));
    CHECK(lab::ring_seconds(1, 4e6, l) == 0);
}

TEST_CASE("buckets: gradients become their mean over the ranks") {
    const auto all = lab::buckets(3, {30, 700, 5, 260}, 300, 40);
    CHECK(all.fault_of_means() == "");
}
