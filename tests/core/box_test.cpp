#include "catch.hpp"

#include <cairn/core/box.hpp>

#include <array>
#include <vector>

namespace cairn::test {

using Catch::Matchers::Contains;

TEST_CASE("box: runs cover every box once, in order, and are as long as can be", "[box]") {
    const shape whole{3, 2, 4};
    std::vector<index_t> numbers(24);
    for (index_t b0 = 0; b0 < 3; ++b0)
        for (index_t n0 = 0; n0 <= 3 - b0; ++n0)
            for (index_t b1 = 0; b1 < 2; ++b1)
                for (index_t n1 = 0; n1 <= 2 - b1; ++n1)
                    for (index_t b2 = 0; b2 < 4; ++b2)
                        for (index_t n2 = 0; n2 <= 4 - b2; ++n2) {
                            std::vector<index_t> expected, found;
                            for (index_t i = b0; i < b0 + n0; ++i)
                                for (index_t j = b1; j < b1 + n1; ++j)
                                    for (index_t k = b2; k < b2 + n2; ++k) expected.push_back((i * 2 + j) * 4 + k);
                            index_t runs = 0;
                            for_runs(whole, std::array<index_t, 3>{b0, b1, b2}, {n0, n1, n2},
                                     [&](index_t at, index_t in_box, index_t length) {
                                         REQUIRE(in_box == static_cast<index_t>(found.size()));
                                         for (index_t i = 0; i < length; ++i) found.push_back(at + i);
                                         ++runs;
                                     });
                            REQUIRE(found == expected);
                            if (expected.empty()) continue;
                            REQUIRE(runs == (n2 < 4 ? n0 * n1 : n1 < 2 ? n0 : 1));
                        }
    index_t calls = 0;
    for_runs({}, {}, {}, [&](index_t at, index_t, index_t length) {
        ++calls;
        REQUIRE((at == 0 && length == 1));
    });
    REQUIRE(calls == 1);
}

TEST_CASE("box: one that lies outside is refused", "[box]") {
    const auto nothing = [](index_t, index_t, index_t) {};
    const std::array<index_t, 2> at{1, 2};
    REQUIRE_THROWS_WITH(for_runs({3, 4}, at, {2, 3}, nothing), Contains("(2, 3) from 2 on axis 1"));
    REQUIRE_THROWS_WITH(for_runs({3, 4, 1}, at, {2, 2}, nothing), Contains("a box of 2 axes"));
}

}  // namespace cairn::test
