#include "catch.hpp"

#include <cairn/data/shuffle.hpp>

#include <map>

namespace cairn::test {

TEST_CASE("shuffle: every permutation of four is about equally likely") {
    std::map<std::vector<index_t>, int> counts;
    const int draws = 24 * 500;
    for (std::uint32_t epoch = 0; epoch < draws; ++epoch) ++counts[epoch_order(4, 77, epoch)];
    REQUIRE(counts.size() == 24);
    double chi2 = 0;
    for (const auto& [order, count] : counts) chi2 += (count - 500.0) * (count - 500.0) / 500.0;
    REQUIRE(chi2 < 49.7);  // 23 degrees of freedom, probability 0.001
}

}  // namespace cairn::test
