// Buckets, the order in which they are reduced, owners of shards, and the progress thread.

#include "parallel/distributed.hpp"

#include "catch.hpp"

#include <atomic>

namespace cairn {

TEST_CASE("buckets: cover the arena from its end, in whole parameters", "[parallel]") {
    auto net = lenet<float>();
    arena<float> weights(net.parameters(), 1);
    for (const index_t bytes : {index_t{1}, index_t{1000}, index_t{50'000}, index_t{1} << 30}) {
        const auto buckets = make_buckets(weights, bytes, bytes);
        index_t end = weights.values().size();
        int last = static_cast<int>(weights.parameters().size());
        for (const bucket& b : buckets) {
            CHECK(b.end == end);
            CHECK(b.last == last);
            CHECK(b.size() > 0);
            CHECK(b.first < b.last);
            if (b.begin > 0) CHECK(b.size() * index_t(sizeof(float)) >= bytes);
            end = b.begin;
            last = b.first;
        }
        CHECK(end == 0);
        CHECK(last == 0);
    }
    CHECK(make_buckets(weights, 1, 1).size() == weights.parameters().size());
    CHECK(make_buckets(weights, index_t{1} << 30, index_t{1} << 30).size() == 1);
    CHECK_THROWS_WITH(make_buckets(weights, 0), Catch::Contains("must be positive"));
}

TEST_CASE("gradient reducer: buckets leave in order, as soon as they are full, from the second step on", "[parallel]") {
    auto net = lenet<float>();
    arena<float> weights(net.parameters(), 1);
    const int count = static_cast<int>(weights.parameters().size());
    std::vector<int> order;
    std::atomic<int> done = 0;
    gradient_reducer<float> reducer(weights, make_buckets(weights, 1, 1), true, [&](int which, std::span<float> g) {
        order.push_back(which);
        CHECK(static_cast<index_t>(g.size()) > 0);
        ++done;
    });
    const auto announce = [&](int p) {
        const int id = p;
        reducer.added(std::span<const int>(&id, 1));
    };
    std::vector<int> all;
    for (int b = 0; b < count; ++b) all.push_back(b);
    for (int step = 0; step < 3; ++step) {
        order.clear();
        done = 0;
        reducer.begin();
        announce(0);  // the first parameters are ready first: their bucket has to wait for its turn
        for (int p = count - 1; p > 0; --p) {
            announce(p);
            if (step > 0 && p == count - 1)
                while (done < 1) std::this_thread::yield();  // it left while others are missing
        }
        reducer.finish();
        CHECK(order == all);
    }
    reducer.begin();
    announce(0);
    CHECK_THROWS_WITH(announce(0), Catch::Contains(weights.parameters()[0].name) && Catch::Contains("2 times"));
}

TEST_CASE("gradient reducer: without overlap nothing leaves before finish()", "[parallel]") {
    auto net = lenet<float>();
    arena<float> weights(net.parameters(), 1);
    int left = 0;
    gradient_reducer<float> reducer(weights, make_buckets(weights, 1, 1), false,
                                    [&](int, std::span<float>) { ++left; });
    for (int step = 0; step < 3; ++step) {
        left = 0;
        reducer.begin();
        for (int p = static_cast<int>(weights.parameters().size()) - 1; p >= 0; --p)
            reducer.added(std::span<const int>(&p, 1));
        CHECK(left == 0);
        reducer.finish();
        CHECK(left == static_cast<int>(reducer.buckets().size()));
    }
}

TEST_CASE("gradient reducer: a first step without samples teaches nothing", "[parallel]") {
    auto net = lenet<float>();
    arena<float> weights(net.parameters(), 1);
    gradient_reducer<float> reducer(weights, make_buckets(weights, 1, 1), true, [](int, std::span<float>) {});
    reducer.begin();
    reducer.finish();
    for (int step = 0; step < 2; ++step) {
        reducer.begin();
        const int first = 0;
        CHECK_NOTHROW(reducer.added(std::span<const int>(&first, 1)));
        reducer.finish();
    }
}

TEST_CASE("owners: shards of an arena", "[parallel][zero]") {
    auto net = lenet<float>();
    arena<float> weights(net.parameters(), 1);
    for (const bool whole : {false, true})
        for (const int ranks : {1, 2, 3, 7, 40}) {
            const auto owners = owners_of(weights, ranks, whole);
            REQUIRE(static_cast<int>(owners.size()) == ranks);
            index_t at = 0;
            for (const range& s : owners) {
                CHECK(s.begin == at);
                CHECK(s.count >= 0);
                CHECK(s.begin % 16 == 0);
                at = s.end();
            }
            CHECK(at == weights.values().size());
            if (!whole) continue;
            for (const auto& [name, p] : weights.parameters()) {  // parameters are owned whole
                const index_t begin = p->value.data() - weights.values().data(), end = begin + p->shape.size();
                int holders = 0;
                for (const range& s : owners) holders += s.begin < end && begin < s.end();
                CHECK(holders == 1);
            }
        }
}

TEST_CASE("progress thread: jobs run in order; the first failure reaches wait()", "[parallel]") {
    progress_thread t;
    std::vector<int> order;
    for (int i = 0; i < 5; ++i) t.submit([&order, i] { order.push_back(i); });
    t.wait();
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
    t.submit([] { fail("lost the connection"); });
    t.submit([&] { order.clear(); });
    CHECK_THROWS_WITH(t.wait(), Catch::Contains("lost the connection"));
    t.submit([&] { order.push_back(9); });
    t.wait();
    CHECK(order.back() == 9);
}

TEST_CASE("progress thread: a job submitted behind a failure is dropped", "[parallel]") {
    progress_thread t;
    std::atomic<bool> begun = false, ran = false;
    t.submit([&] {
        begun = true;
        fail("lost the connection");
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // the failure is noted
    t.submit([&] { ran = true; });
    CHECK_THROWS_WITH(t.wait(), Catch::Contains("lost the connection"));
    CHECK_FALSE(ran);
}

}  // namespace cairn
