#include "catch.hpp"

#include <cairn/core/shape.hpp>

#include <sstream>
#include <vector>

namespace cairn {

using Catch::Matchers::Contains;

TEST_CASE("shape: extents, rank, size and positions from the end", "[shape]") {
    const shape s{8, 32, 24, 3};
    CHECK(s.rank() == 4);
    CHECK(s.size() == 8 * 32 * 24 * 3);
    CHECK(s[0] == 8);
    CHECK(s[-1] == 3);
    CHECK(s[-4] == 8);
    CHECK(s.front() == 8);
    CHECK(s.back() == 3);
    CHECK(std::vector<index_t>(s.begin(), s.end()) == std::vector<index_t>{8, 32, 24, 3});
}

TEST_CASE("shape: rank 0 holds one element, an empty axis none", "[shape]") {
    CHECK(shape{}.rank() == 0);
    CHECK(shape{}.size() == 1);
    CHECK(shape{4, 0, 3}.size() == 0);
}

TEST_CASE("shape: compared by extents and rank", "[shape]") {
    CHECK(shape{2, 3} == shape{2, 3});
    CHECK(shape{2, 3} != shape{3, 2});
    CHECK(shape{2, 3} != shape{2, 3, 1});
    CHECK(shape{2} != shape{});
    // What lies beyond the rank does not count.
    shape grown{2, 3};
    grown.push_back(7);
    CHECK(shape(std::span<const index_t>(grown.begin(), 2)) == shape{2, 3});
}

TEST_CASE("shape: with() changes one axis of a copy", "[shape]") {
    const shape s{8, 32, 3};
    CHECK(s.with(0, 1) == shape{1, 32, 3});
    CHECK(s.with(-1, 64) == shape{8, 32, 64});
    CHECK(s == shape{8, 32, 3});
}

TEST_CASE("shape: prints as (2, 3, 4)", "[shape]") {
    std::ostringstream out;
    out << shape{2, 3, 4} << shape{5} << shape{};
    CHECK(out.str() == "(2, 3, 4)(5)()");
}

TEST_CASE("shape: up to six axes, none negative; the message names the axis", "[shape]") {
    CHECK(shape{1, 2, 3, 4, 5, 6}.size() == 720);
    CHECK_THROWS_WITH((shape{1, 1, 1, 1, 1, 1, 1}), Contains("6"));
    CHECK_THROWS_WITH((shape{4, -3}), Contains("-3") && Contains("axis 1"));
}

TEST_CASE("shape: a number of elements that no index can hold is refused, not wrapped around", "[shape]") {
    const index_t big = index_t{1} << 40;
    CHECK_THROWS_WITH((shape{big, big}), Contains("1099511627776"));
    CHECK_THROWS_AS((shape{big, 1}.with(1, big)), error);
    CHECK(shape{big, 1 << 18}.size() == index_t{1} << 58);
}

}  // namespace cairn
