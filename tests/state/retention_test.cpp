#include "catch.hpp"
#include "messages.hpp"

#include <cairn/core/random.hpp>
#include <cairn/state/retention.hpp>

#include <limits>
#include <map>

namespace cairn::test {

using Catch::Matchers::Contains;

namespace {

using names = std::vector<std::string>;

// Versions at steps 100, 200, …, an epoch of 200 steps, committed in order.
std::vector<retained_version> at_steps(int count) {
    std::vector<retained_version> all;
    for (int i = 1; i <= count; ++i) all.push_back({std::to_string(i), 100 * i, i / 2.0, {}, false, 1000.0 + i});
    return all;
}

names removed(const std::vector<retained_version>& versions, const names& rules,
              best_metric best = best_metric::largest) {
    return versions_to_remove(versions, parse_retention(rules), best);
}

}  // namespace

TEST_CASE("retention rules are read, and what is none is named") {
    using kind = retention_rule::kind;
    CHECK(parse_retention({"last 3", " best  1", "every 10 epochs", "every 500 steps", "every 1 epoch"}) ==
          std::vector<retention_rule>{{kind::last, 3},
                                      {kind::best, 1},
                                      {kind::every_epochs, 10},
                                      {kind::every_steps, 500},
                                      {kind::every_epochs, 1}});
    for (const char* text :
         {"", "last", "last 0", "last -1", "last 3x", "last 3 epochs", "lst 3", "best 1.5", "every 10",
          "every 10 minutes", "every 10 epoch", "every epochs", "last 99999999999999999999", "3"})
        CHECK_THAT(message_of([&] {
                       parse_retention({"last 1", text});
                   }),
                   Contains(concat('"', text, "\" is no rule")) && Contains("\"every N steps\", N at least 1"));
}

TEST_CASE("retention keeps what its rules say") {
    auto all = at_steps(6);
    CHECK(removed(all, {}).empty());
    CHECK(removed({}, {"last 1"}).empty());
    CHECK(removed(all, {"last 6"}).empty());
    CHECK(removed(all, {"last 4000000000"}).empty());
    CHECK(removed(all, {"last 2"}) == names{"1", "2", "3", "4"});
    CHECK(removed(all, {"every 2 epochs"}) == names{"1", "2", "3", "5"});  // 4 is at epoch 2, 6 is the newest
    CHECK(removed(all, {"every 250 steps"}) == names{"1", "2", "4"});      // 3 passes 250, 5 passes 500
    all[1].tagged = true;
    CHECK(removed(all, {"last 2"}) == names{"1", "3", "4"});
    all[1].tagged = false;
    CHECK(removed(all, {"best 2"}) == names{"1", "2", "3", "4", "5"});  // none has a metric: the newest stays
    all[0].metric = 0.5, all[2].metric = 0.9, all[3].metric = 0.9, all[4].metric = 0.7;
    all[5].metric = std::numeric_limits<double>::quiet_NaN();
    CHECK(removed(all, {"best 1"}) == names{"1", "2", "3", "5"});
    CHECK(removed(all, {"best 2"}) == names{"1", "2", "5"});
    CHECK(removed(all, {"best 1"}, best_metric::smallest) == names{"2", "3", "4", "5"});
    CHECK(removed(all, {"best 1", "last 2", "every 1 epochs"}) == names{"1", "3"});
    std::swap(all[0], all[5]);  // the order of the list does not matter
    CHECK(removed(all, {"last 2"}) == names{"1", "2", "3", "4"});
    CHECK(removed({{"a", 500, 5, {}, false, 1}, {"b", 300, 3, {}, false, 2}}, {"last 1"}) == names{"a"});
}

TEST_CASE("retention after every commit removes no version that was just committed, and forgets no multiple") {
    const random_stream random{31, 0, 0};
    std::uint64_t draw = 0;
    for (int trial = 0; trial < 100; ++trial) {
        const auto last = random.below(3, draw++) + 1, best = random.below(3, draw++) + 1,
                   every = random.below(900, draw++) + 100;
        const auto rules =
            parse_retention({concat("last ", last), concat("best ", best), concat("every ", every, " steps")});
        std::vector<retained_version> kept, ever;
        std::int64_t step = 0;
        for (int commit = 1; commit <= 30; ++commit) {
            step += static_cast<std::int64_t>(random.below(200, draw++)) + 1;
            retained_version v{concat("v", commit), step, 0, {}, random.below(10, draw++) == 0, double(commit)};
            if (random.below(4, draw++)) v.metric = static_cast<double>(random.below(6, draw++));
            kept.push_back(v);
            ever.push_back(v);
            for (const std::string& name : versions_to_remove(kept, rules, best_metric::largest)) {
                REQUIRE(name != v.name);
                std::erase_if(kept, [&](const retained_version& k) { return k.name == name; });
            }
            // By counting, over all that ever were: better ones, later ones, the first of each multiple.
            std::map<std::int64_t, std::string> first_of;
            for (const retained_version& e : ever)
                if (e.step / static_cast<std::int64_t>(every) > 0)
                    first_of.try_emplace(e.step / static_cast<std::int64_t>(every), e.name);
            for (const retained_version& e : ever) {
                std::uint64_t later = 0, better = 0;
                for (const retained_version& o : ever) {
                    later += o.committed > e.committed;
                    better += e.metric && o.metric &&
                              (*o.metric > *e.metric || (*o.metric == *e.metric && o.committed > e.committed));
                }
                const auto multiple = first_of.find(e.step / static_cast<std::int64_t>(every));
                const bool wanted = later < last || (e.metric && better < best) || e.tagged ||
                                    (multiple != first_of.end() && multiple->second == e.name);
                const bool there =
                    std::ranges::any_of(kept, [&](const retained_version& k) { return k.name == e.name; });
                REQUIRE(there == wanted);
            }
        }
    }
}

}  // namespace cairn::test
