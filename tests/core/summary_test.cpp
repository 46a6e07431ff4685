#include <cairn/core/summary.hpp>

#include <catch2/catch.hpp>

#include <vector>

namespace {

using cairn::means_of_tenths;
using cairn::median;

TEST_CASE("medians are the middle value, or the mean of the two in the middle", "[core]") {
    CHECK(median({}) == 0);
    CHECK(median({3}) == 3);
    CHECK(median({4, 1, 2}) == 2);
    CHECK(median({4, 1, 2, 8}) == 3);
    CHECK(median({2, 2, 1, 1}) == 1.5);
}

TEST_CASE("tenths of a series are means of consecutive parts that have every value once", "[core]") {
    CHECK(means_of_tenths(std::vector<double>{}).empty());
    CHECK(means_of_tenths(std::vector<double>{5, 7}) == std::vector<double>{5, 7});
    std::vector<double> values;
    for (int i = 0; i < 25; ++i) values.push_back(i);
    const std::vector<double> parts = means_of_tenths(values);  // of 2, 3, 2, 3 … values
    REQUIRE(parts.size() == 10);
    CHECK(parts[0] == 0.5);
    CHECK(parts[1] == 3);
    CHECK(parts[9] == 23);
}

TEST_CASE("a disturbance that comes back is in the median of tenths, a single one is not", "[core]") {
    std::vector<double> often(100, 1.0), once(100, 1.0);
    for (std::size_t i = 0; i < often.size(); i += 10) often[i] = 3;  // one step of ten takes three times as long
    once[50] = 1000;
    CHECK(median(often) == 1);
    CHECK(median(means_of_tenths(often)) == Approx(1.2));
    CHECK(median(means_of_tenths(once)) == 1);
}

}  // namespace
