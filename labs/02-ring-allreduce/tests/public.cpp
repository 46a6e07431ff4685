// The tests that students have.

#include "ranks.hpp"

#include "all_reduce.hpp"
#include "buckets.hpp"
#include "cost.hpp"

namespace {

const auto ring = [](auto& c, std::span<float> data) { student::ring_all_reduce(c, data); };
const auto halving = [](auto& c, std::span<float> data) { student::halving_doubling_all_reduce(c, data); };

}  // namespace

TEST_CASE("ring: every rank has the sum") {
    for (const int p : {1, 2, 3, 4}) {
        const auto all = lab::run(p, 1000, 10, ring);
        INFO(p << " ranks, 1000 elements: " << all.fault());
        CHECK(all.fault().empty());
    }
}

TEST_CASE("ring: messages and bytes are the fewest") {
    for (const int p : {2, 4, 8}) {
        const std::size_t n = 4096;
        const auto all = lab::run(p, n, 20, ring);
        INFO(p << " ranks, " << n << " elements: " << all.fault());
        REQUIRE(all.fault().empty());
        for (const auto& counts : all.counts) {
            CHECK(counts.messages == 2 * (p - 1));
            CHECK(counts.bytes ==
                  2 * (p - 1) * static_cast<std::int64_t>(n / static_cast<std::size_t>(p) * sizeof(float)));
            CHECK(counts.rounds <= 2 * (p - 1));
        }
    }
}

TEST_CASE("halving and doubling: every rank has the sum") {
    for (const int p : {1, 2, 4, 8}) {
        const auto all = lab::run(p, 1000, 30, halving);
        INFO(p << " ranks, 1000 elements: " << all.fault());
        CHECK(all.fault().empty());
    }
}

TEST_CASE("cost: predictions of both algorithms") {
    const student::link l{.alpha = 2e-6, .beta = 1e-9, .gamma = 1e-10};
    // Four ranks, 4 MB: 6 messages, 6 MB sent, 3 MB added.
    CHECK(student::ring_seconds(4, 4e6, l) == Approx(6 * 2e-6 + 6e6 * 1e-9 + 3e6 * 1e-10).epsilon(1e-12));
    // 4 messages instead.
    CHECK(student::halving_doubling_seconds(4, 4e6, l) == Approx(4 * 2e-6 + 6e6 * 1e-9 + 3e6 * 1e-10).epsilon(1e-12));
    CHECK(student::ring_seconds(1, 4e6, l) == 0);
}

TEST_CASE("buckets: gradients become their mean over the ranks") {
    const std::vector<std::size_t> sizes{30, 700, 5, 260};
    const std::size_t total = 995;
    const auto all = lab::run(3, total, 40, [&](auto& c, std::span<float> data) {
        std::vector<std::span<float>> gradients;
        std::size_t at = 0;
        for (const std::size_t n : sizes) gradients.push_back(data.subspan(at, n)), at += n;
        student::reduce_gradients(c, gradients, 300 * sizeof(float));
    });
    auto mean = all.sums(), bound = all.bounds();
    for (double& m : mean) m /= 3;
    for (const auto& after : all.after) {
        const std::string fault = lab::difference(std::span<const float>(after), mean, bound);
        INFO(fault);
        CHECK(fault.empty());
    }
}
