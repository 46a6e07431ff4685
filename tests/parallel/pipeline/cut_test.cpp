// Cutting a model into stages: units, costs, identity of parameters, skips across a cut, and the best balance.

#include "catch.hpp"
#include "messages.hpp"
#include "parallel/pipeline/networks.hpp"

namespace pipelines {

namespace {

std::vector<std::string> paths_of(model& net) {
    std::vector<std::string> all;
    for (const auto& [name, p] : net.parameters()) all.push_back(name);
    return all;
}

/// The slowest stage of the best of all cuts, by trying each.
double best_of_all(const std::vector<unit_load>& units, std::size_t begin, int stages, const memory_bound& bound) {
    double best = std::numeric_limits<double>::infinity();
    const std::size_t stage = bound.in_flight.size() - static_cast<std::size_t>(stages);
    unit_load sum;
    for (std::size_t end = begin + 1; end <= units.size(); ++end) {
        sum.time += units[end - 1].time;
        sum.fixed_bytes += units[end - 1].fixed_bytes;
        sum.saved_bytes += units[end - 1].saved_bytes;
        if (sum.fixed_bytes + bound.in_flight[stage] * sum.saved_bytes > bound.limit) break;
        if (stages == 1 && end < units.size()) continue;
        best = std::min(best, std::max(sum.time, stages == 1 ? 0 : best_of_all(units, end, stages - 1, bound)));
    }
    return best;
}

}  // namespace

TEST_CASE("cut: parameters keep their paths and values in any number of stages", "[pipeline]") {
    for (const network& net : networks()) {
        model whole = net.make();
        const std::vector<std::string> paths = paths_of(whole);
        const shape out = whole.output_shape(net.sample);
        const auto units = static_cast<int>(units_of(whole, net.sample).size());
        arena<double> weights(whole.parameters(), 3);
        for (const int n : {2, 3, units}) {
            CAPTURE(net.name, n);
            std::vector<model> stages = stages_of(net, n);
            REQUIRE(static_cast<int>(stages.size()) == n);
            CHECK(boundaries_of(stages, net.sample).back() == out);
            std::vector<std::string> together;
            std::size_t next = 0;
            for (model& part : stages) {
                for (const std::string& path : paths_of(part)) together.push_back(path);
                if (part.parameters().empty()) continue;
                arena<double> here(part.parameters(), 3);
                for (const auto& [name, p] : here.parameters()) {
                    const auto& expected = weights.parameters()[next++];
                    REQUIRE(name == expected.name);
                    CHECK(values_of(p->value) == values_of(expected.p->value));
                }
            }
            CHECK(together == paths);
        }
    }
}

TEST_CASE("cut: units, what crosses between them, and cuts by name", "[pipeline]") {
    model net = skips();
    const std::vector<model_unit> units = units_of(net, {1, 4, 4, 2});
    std::vector<std::string> paths;
    for (const model_unit& u : units) paths.push_back(u.path);
    CHECK(paths == std::vector<std::string>{"stem", "skip/in", "skip/drop", "skip/skip/a", "skip/skip/act",
                                            "skip/skip/b", "skip/out", "act", "flatten", "head"});
    CHECK(units[1].in == shape{1, 4, 4, 3});
    CHECK(units[2].in == shape{1, 16 * (3 + 4)});      // the outer skip beside the activation
    CHECK(units[4].in == shape{1, 16 * (3 + 4 + 5)});  // both skips
    CHECK(units[6].in == shape{1, 16 * (3 + 7)});
    CHECK(units[7].in == shape{1, 4, 4, 5});
    CHECK(cuts_before(units, {"skip/skip", "act"}) == std::vector<int>{3, 7});
    CHECK(test::contains(test::message_of([&] { cuts_before(units, {"tail"}); }), "has no such layer"));
    model blocks = network_named("resnet").make();
    const auto of_blocks = units_of(blocks, {1, 6, 6, 3});
    CHECK(test::contains(test::message_of([&] { cuts_before(of_blocks, {"layer1/0/conv2"}); }),
                         "it lies inside layer1/0, which runs in one piece"));
    const std::vector<model> stages = cut(net, {1, 4, 4, 2}, {4, 6});
    const std::vector<shape> boundaries = boundaries_of(stages, {1, 4, 4, 2});
    CHECK(boundaries[1] == units[4].in);
    CHECK(boundaries[2] == units[6].in);
    CHECK(test::contains(test::message_of([&] { stages[1].output_shape({1, 7}); }), "part of a skip"));
    for (const std::vector<int>& wrong : {std::vector{0}, {3, 3}, {10}, {4, 2}}) {
        model again = skips();
        CHECK(test::contains(test::message_of([&] {
                                 cut(again, {1, 4, 4, 2}, wrong);
                             }),
                             "every stage needs at least one"));
    }
}

TEST_CASE("balance: the best of all cuts, within its memory", "[pipeline]") {
    const random_stream random{5, 1};
    std::uint64_t drawn = 0;
    for (int trial = 0; trial < 60; ++trial) {
        const auto n = 1 + random.below(9, drawn++);
        std::vector<unit_load> units;
        for (std::size_t i = 0; i < n; ++i)
            units.push_back({double(random.below(10, drawn)), double(random.below(6, drawn + 1)),
                             double(random.below(4, drawn + 2))}),
                drawn += 3;
        for (int stages = 1; stages <= static_cast<int>(n); ++stages)
            for (const double limit : {1e300, 25.0, 12.0}) {
                memory_bound bound{.limit = limit};
                for (int s = 0; s < stages; ++s) bound.in_flight.push_back(stages - s);
                const double best = best_of_all(units, 0, stages, bound);
                CAPTURE(trial, n, stages, limit, best);
                if (std::isinf(best)) {
                    CHECK(test::contains(test::message_of([&] { balance(units, stages, bound); }), "no cut into"));
                    continue;
                }
                std::vector<int> cuts = balance(units, stages, bound);
                cuts.push_back(static_cast<int>(n));
                double slowest = 0;
                std::size_t at = 0;
                for (std::size_t s = 0; s < cuts.size(); ++s) {
                    double time = 0, bytes = 0;
                    REQUIRE(static_cast<std::size_t>(cuts[s]) > at);
                    for (; at < static_cast<std::size_t>(cuts[s]); ++at) {
                        time += units[at].time;
                        bytes += units[at].fixed_bytes + bound.in_flight[s] * units[at].saved_bytes;
                    }
                    CHECK(bytes <= limit);
                    slowest = std::max(slowest, time);
                }
                CHECK(slowest == best);
            }
    }
    CHECK(balance({{1}, {1}, {1}, {1}}, 2) == std::vector<int>{2});
    CHECK(test::contains(test::message_of([] { balance({{1}, {1}}, 3); }), "3 stages, but the model has 2 layers"));
}

}  // namespace pipelines
