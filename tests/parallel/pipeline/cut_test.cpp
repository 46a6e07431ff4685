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

/// A block with a projection, the last layer of whose body adds the skip; one without either; attention's.
model blocks() {
    const auto mix = [](index_t in, index_t out, index_t stride) {
        return conv<double>({.in = in, .out = out, .kernel = 3, .stride = stride, .pad = 1, .bias = false});
    };
    model body, shortcut, plain, all;
    body.add("conv1", mix(2, 4, 2)).add("norm1", batch_norm<double>({.channels = 4, .act = activation::relu}));
    body.add("conv2", mix(4, 4, 1)).add("norm2", batch_norm<double>({.channels = 4, .act = activation::relu}));
    shortcut.add("conv", conv<double>({.in = 2, .out = 4, .kernel = 1, .stride = 2}));
    plain.add("conv1", mix(4, 3, 1)).add("act", activation_layer<double>(activation::tanh)).add("conv2", mix(3, 4, 1));
    all.add("a", residual<double>(std::move(body), std::move(shortcut))).add("b", residual<double>(std::move(plain)));
    all.add("flatten", flatten<double>()).add("head", linear<double>({.in = 4 * 4, .out = 10}));
    return all;
}

/// The slowest stage of the best of all cuts, by trying each.
double best_of_all(const std::vector<unit_load>& units, std::size_t begin, int stages, const memory_bound& bound) {
    double best = std::numeric_limits<double>::infinity();
    if (begin == units.size()) return best;  // nothing is left for this stage
    const std::size_t stage = bound.in_flight.size() - static_cast<std::size_t>(stages);
    unit_load sum;
    if (begin > 0) sum.time = units[begin].crossing;
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
            for (model& part : stages) {
                for (const std::string& path : paths_of(part)) together.push_back(path);
                if (part.parameters().empty()) continue;
                arena<double> here(part.parameters(), 3, arena_scope::stage);
                for (const auto& [name, p] : here.parameters()) {
                    const auto is_it = [&, path = name](const auto& of_whole) { return of_whole.name == path; };
                    const auto expected = std::ranges::find_if(weights.parameters(), is_it);
                    REQUIRE(expected != weights.parameters().end());
                    CHECK(values_of(p->value) == values_of(expected->p->value));
                }
            }
            CHECK(std::ranges::is_permutation(together, paths));  // shortcuts come with the first part of their block
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

TEST_CASE("cut: residual blocks, with what crosses beside the activation", "[pipeline]") {
    model net = blocks();
    const shape in{1, 4, 4, 2};
    const std::vector<model_unit> units = units_of(net, in);
    std::vector<std::string> paths;
    index_t parameters = 0;
    for (const model_unit& u : units) paths.push_back(u.path), parameters += u.cost.parameters;
    CHECK(paths == std::vector<std::string>{"a/conv1", "a/norm1", "a/conv2", "a/norm2", "b/conv1", "b/act", "b/conv2",
                                            "flatten", "head"});
    CHECK(parameters == net.cost(in).parameters);
    CHECK(units[0].cost.parameters == 9 * 2 * 4 + 2 * 4 + 4);  // with the shortcut's
    const index_t skip = 2 * 2 * 4;
    CHECK(units[1].in == shape{1, skip + 2 * 2 * 4});  // the shortcut's output beside the activation
    CHECK(units[3].in == shape{1, skip + 2 * 2 * 4});
    CHECK(units[4].in == shape{1, 2, 2, 4});
    CHECK(units[6].in == shape{1, skip + 2 * 2 * 3});
    CHECK(cuts_before(units, {"a/norm2", "b"}) == std::vector<int>{3, 4});
    CHECK(test::contains(test::message_of([&] { cuts_before(units, {"a/conv1/kernel"}); }),
                         "it lies inside a/conv1, which runs in one piece"));
    std::vector<model> stages = cut(net, in, {3, 6});
    const std::vector<shape> boundaries = boundaries_of(stages, in);
    CHECK(boundaries[1] == units[3].in);
    CHECK(boundaries[2] == units[6].in);
    CHECK(paths_of(stages[0]) == std::vector<std::string>{"a/conv1/weight", "a/norm1/weight", "a/norm1/bias",
                                                          "a/conv2/weight", "a/shortcut/conv/weight",
                                                          "a/shortcut/conv/bias"});
    CHECK(test::contains(test::message_of([&] { stages[1].output_shape({1, 7}); }), "part of a skip"));
}

TEST_CASE("cut: inside containers that a user wrote", "[pipeline][own]") {
    model net = own_containers();
    const std::vector<model_unit> units = units_of(net, {1, 12});
    std::vector<std::string> paths;
    for (const model_unit& u : units) paths.push_back(u.path);
    CHECK(paths == std::vector<std::string>{"box/box/fc", "box/box/drop", "joined/left/fc", "joined/left/drop",
                                            "joined/left/fc2", "added/left/fc", "added/left/drop",
                                            "added/left/box/box/fc", "added/left/box/box/drop", "head"});
    CHECK(units[1].in == shape{1, 9});
    CHECK(units[3].in == shape{1, 4 + 6});  // what the right chain made beside the activation
    CHECK(units[8].in == shape{1, 5 + 5});
}

TEST_CASE("balance: the best of all cuts, within its memory", "[pipeline]") {
    const random_stream random{5, 1};
    std::uint64_t drawn = 0;
    for (int trial = 0; trial < 60; ++trial) {
        const auto n = 1 + random.below(9, drawn++);
        std::vector<unit_load> units;
        for (std::size_t i = 0; i < n; ++i)
            units.push_back({double(random.below(10, drawn)), double(random.below(6, drawn + 1)),
                             double(random.below(4, drawn + 2)), double(random.below(5, drawn + 3))}),
                drawn += 4;
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
                    double time = at > 0 ? units[at].crossing : 0, bytes = 0;
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
