// The laws of all collectives on ranks that are threads, and on one rank alone.

#include "collectives/laws.hpp"

#include <cairn/comm/self.hpp>
#include <cairn/comm/threads.hpp>

#include "catch.hpp"

namespace cairn {

template <class T>
void laws_on_threads() {
    for (int p = 1; p <= 9; ++p) {
        const auto made = laws::expectations<T>(p);
        run_ranks(p, [&](threads_communicator& c) { laws::all_laws<T>(c, made); });
    }
}

TEMPLATE_TEST_CASE("collectives: laws on 1 to 9 threads", "[collectives]", float, bfloat16) {
    laws_on_threads<TestType>();
}
TEMPLATE_TEST_CASE("collectives: laws on 1 to 9 threads, other types", "[.exhaustive][collectives]", double, float16,
                   std::int32_t) {
    laws_on_threads<TestType>();
}

TEMPLATE_TEST_CASE("collectives: laws on one rank alone", "[collectives]", float, double, bfloat16, float16,
                   std::int32_t) {
    self_communicator c;
    laws::all_laws<TestType>(c, laws::expectations<TestType>(1));
}

TEST_CASE("collectives: NaN and zeros of both signs are the same bits on all ranks", "[collectives]") {
    constexpr float nan = std::numeric_limits<float>::quiet_NaN();
    const float special[] = {0.0f, -0.0f, nan, -nan, 1.0f, -1.0f, std::numeric_limits<float>::infinity()};
    for (const int p : {2, 3, 4, 5, 8})
        for (const auto& [algorithm, name] : all_reduce_names) {
            if (algorithm == all_reduce_algorithm::vendor) continue;
            for (const reduction op : {reduction::sum, reduction::max, reduction::min}) {
                std::vector<std::vector<float>> results(static_cast<std::size_t>(p));
                run_ranks(p, [&, which = algorithm](threads_communicator& c) {
                    std::vector<float>& data = results[static_cast<std::size_t>(c.rank())];
                    for (std::size_t i = 0; i < 343; ++i)
                        data.push_back(special[(c.rank() == 0 ? i : c.rank() == 1 ? i / 7 : i / 49) % 7]);
                    all_reduce(c, std::span<float>(data), {.op = op, .algorithm = which});
                });
                INFO(name << ' ' << name_of(op) << " on " << p);
                for (const auto& result : results) CHECK(laws::same_bits<float>(result, results[0]));
            }
        }
}

TEST_CASE("collectives: bad input is an error on the rank that gave it", "[collectives]") {
    const auto on_two = [](auto body) { run_ranks(2, {.time_limit = 5}, body); };
    using catching = threads_communicator;
    std::vector<float> data(10);
    self_communicator alone;
    CHECK_THROWS_WITH(all_gather(alone, std::span<float>(data), {{0, 5}, {5, 5}}),
                      Catch::Contains("2 parts for 1 ranks"));
    CHECK_THROWS_WITH(reduce_scatter(alone, std::span<float>(data), std::vector<range>{}),
                      Catch::Contains("0 parts for 1 ranks"));
    CHECK_THROWS_WITH(broadcast(alone, std::span<float>(data), 1), Catch::Contains("root 1 of 1 ranks"));
    CHECK_THROWS_WITH(broadcast(alone, std::span<float>(data), -1), Catch::Contains("root -1 of 1 ranks"));
    CHECK_THROWS_WITH(on_two([](catching& c) {
                          std::vector<float> out(3), in(3);
                          all_to_all(c, std::span<const float>(out), std::span<float>(in));
                      }),
                      Catch::Contains("multiple of 2"));
    CHECK_THROWS_WITH(on_two([](catching& c) {  // different counts
                          std::vector<float> mine(c.rank() == 0 ? 100 : 104);
                          all_reduce(c, std::span<float>(mine));
                      }),
                      Catch::Contains("bytes") && Catch::Contains("rank"));
    CHECK_THROWS_WITH(on_two([](catching& c) {  // a rank that leaves
                          std::vector<float> mine(100);
                          require(c.rank() == 0, "out of memory, say");
                          all_reduce(c, std::span<float>(mine));
                      }),
                      Catch::Contains("rank 1: out of memory, say"));
    CHECK_THROWS_WITH(on_two([](catching& c) {
                          std::vector<float> mine(100);
                          all_reduce(c, std::span<float>(mine), {.algorithm = all_reduce_algorithm::vendor});
                      }),
                      Catch::Contains("threads: has no all-reduce of its own for float"));
    CHECK_THROWS_WITH(all_reduce_named("rign"), Catch::Contains("'rign'") && Catch::Contains("ring"));
    CHECK(all_reduce_named("ring") == all_reduce_algorithm::ring);
}

}  // namespace cairn
