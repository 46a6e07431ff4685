#include "catch.hpp"

#include <cairn/device/cpu/folded_rows.hpp>

#include <mutex>
#include <set>

namespace cairn {

TEMPLATE_TEST_CASE("folded_rows: whole packs, all elements, chunks by size alone", "[folded_rows]", float, double) {
    for (const index_t columns : {1, 2, 3, 6, 16, 64, 65, 100, 255, 1001, 2048})
        for (const index_t rows : {1, 2, 7, 128, 1000, 5003}) {
            CAPTURE(columns, rows);
            const folded_rows l = folded_rows::of<TestType>(rows, columns);
            CHECK(l.period == l.fold * columns);
            CHECK(l.period % simd::lanes<TestType> == 0);
            CHECK(l.period >= 8 * simd::lanes<TestType>);
            CHECK(l.elements() == rows * columns);
            CHECK((l.rest >= 0 && l.rest < l.period && l.rest % columns == 0));
            CHECK(l.chunks == (l.count + l.grain - 1) / l.grain);
        }
}

TEST_CASE("folded_rows: forward and backward visit the same chunks", "[folded_rows]") {
    const folded_rows l = folded_rows::of<float>(70000, 64);
    REQUIRE(l.chunks > 10);
    const int before = threads();
    for (const int n : {1, 2, 3}) {
        set_threads(n);
        std::mutex mutex;
        std::set<std::array<index_t, 3>> forward, backward;
        l.forward([&](index_t chunk, index_t begin, index_t end) {
            const std::scoped_lock lock(mutex);
            forward.insert({chunk, begin, end});
        });
        l.backward([&](index_t chunk, index_t begin, index_t end) {
            const std::scoped_lock lock(mutex);
            backward.insert({chunk, begin, end});
        });
        CHECK(static_cast<index_t>(forward.size()) == l.chunks);
        CHECK(forward == backward);
        CHECK((*forward.rbegin())[2] == l.count);
    }
    set_threads(before);
}

TEST_CASE("folded_rows: values are repeated along a long row", "[folded_rows]") {
    const folded_rows l = folded_rows::of<float>(10, 3);
    std::vector<float> out(static_cast<std::size_t>(l.period));
    l.repeat([](index_t c) { return c * 10; }, out.data());
    for (std::size_t i = 0; i < out.size(); ++i) CHECK(out[i] == static_cast<float>(i % 3 * 10));
}

}  // namespace cairn
