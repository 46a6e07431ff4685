#include "catch.hpp"

#include <cairn/device/pool_geometry.hpp>

#include "oracle/pool.hpp"

namespace cairn {

namespace {

/// The axis has the windows of the oracle, and its inverse names exactly the windows that cover each position.
void check_axis(const pool_axis& a, const oracle::pool_windows& expected) {
    REQUIRE(a.out == static_cast<index_t>(expected.size()));
    for (std::size_t o = 0; o < expected.size(); ++o) {
        CHECK(a.begin[o] == expected[o].begin);
        CHECK(a.end[o] == expected[o].end);
        CHECK(a.start[o] == expected[o].full_begin);
    }
    for (index_t i = 0; i < a.in; ++i)
        for (index_t o = 0; o < a.out; ++o) {
            const bool covers = a.begin[std::size_t(o)] <= i && i < a.end[std::size_t(o)];
            const bool named = a.first[std::size_t(i)] <= o && o < a.last[std::size_t(i)];
            CHECK(covers == named);
        }
}

}  // namespace

TEST_CASE("pool_geometry: sliding windows", "[pool]") {
    for (const index_t in : {1, 2, 5, 8, 13})
        for (const index_t kernel : {1, 2, 3, 5})
            for (const index_t stride : {1, 2, 3, 7})
                for (index_t pad = 0; 2 * pad <= kernel; ++pad) {
                    CAPTURE(in, kernel, stride, pad);
                    const pool_axis a = pool_axis::sliding(in, kernel, stride, pad);
                    check_axis(a, oracle::sliding(in, kernel, stride, pad));
                    CHECK(a.tiles() == (pad == 0 && a.out * kernel == in && (kernel == stride || a.out == 1)));
                }
}

TEST_CASE("pool_geometry: adaptive windows", "[pool]") {
    for (const index_t in : {1, 2, 5, 7, 32})
        for (const index_t out : {1, 2, 3, 7, 9}) {
            CAPTURE(in, out);
            check_axis(pool_axis::adaptive(in, out), oracle::adaptive(in, out));
        }
    CHECK(pool_axis::adaptive(8, 4).tiles());
    CHECK_FALSE(pool_axis::adaptive(7, 4).tiles());
}

}  // namespace cairn
