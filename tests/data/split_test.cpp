#include "catch.hpp"
#include "data/synthetic.hpp"

#include <cairn/data/split.hpp>

namespace cairn::test {
namespace {
using Catch::Matchers::Contains;
}

TEST_CASE("split: parts are disjoint, complete and repeatable") {
    const auto s = random_split(101, 0.8, 4);
    REQUIRE(s.first.size() == 81);
    std::vector<index_t> all = s.first;
    all.insert(all.end(), s.second.begin(), s.second.end());
    std::sort(all.begin(), all.end());
    for (index_t i = 0; i < 101; ++i) REQUIRE(all[static_cast<std::size_t>(i)] == i);
    REQUIRE(random_split(101, 0.8, 4).first == s.first);
    REQUIRE(random_split(101, 0.8, 5).first != s.first);

    std::vector<int> held_out(23, 0);
    for (index_t fold = 0; fold < 5; ++fold) {
        const auto f = fold_split(23, 5, fold, 1);
        REQUIRE(f.first.size() + f.second.size() == 23);
        REQUIRE((f.second.size() == 4 || f.second.size() == 5));
        for (index_t i : f.second) ++held_out[static_cast<std::size_t>(i)];
    }
    for (int times : held_out) REQUIRE(times == 1);

    std::vector<std::int32_t> labels;
    for (int i = 0; i < 60; ++i) labels.push_back(i % 3 ? 1 : 0);
    const auto strata = stratified_split(labels, 0.25, 2);
    REQUIRE(std::count_if(strata.first.begin(), strata.first.end(),
                          [&](index_t i) { return labels[static_cast<std::size_t>(i)] == 0; }) == 5);
    REQUIRE(strata.first.size() == 15);
    REQUIRE_THAT(message_of([] { random_split(10, 1.5, 0); }), Contains("fraction 1.5"));
    REQUIRE_THAT(message_of([] { fold_split(10, 11, 0, 0); }), Contains("11 folds of 10"));

    const auto drawn = held_out_split(100, 30, 20, false), more = held_out_split(100, 80, 20, false);
    REQUIRE(drawn.first.size() == 30);
    REQUIRE(drawn.second == more.second);
    REQUIRE(more.second.front() < 50);
    REQUIRE(std::ranges::includes(more.first, drawn.first));
    const auto ends = held_out_split(10, 2, 3, true);
    REQUIRE(ends.first == std::vector<index_t>{0, 1});
    REQUIRE(ends.second == std::vector<index_t>{7, 8, 9});
    REQUIRE_THAT(message_of([] { held_out_split(10, 8, 3, false); }), Contains("8 and 3 of 10"));

    const subset part(counting_dataset{.n = 10}, {7, 2});
    float x[3];
    std::int32_t label = 0;
    REQUIRE(part.read(0, {}, {x, &label, nullptr}));
    REQUIRE(x[0] == 7);
    REQUIRE(part.sample_name(1) == "count #2");
    REQUIRE_THAT(message_of([] { subset(counting_dataset{.n = 10}, {10}); }),
                 Contains("sample 10 of a data set of 10"));
}

}  // namespace cairn::test
