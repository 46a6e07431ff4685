// Parameters in one piece: slices of odd shapes gathered, scattered to another mesh, and what does not fit refused.

#include "catch.hpp"
#include "messages.hpp"

#include <cairn/comm/threads.hpp>
#include <cairn/core/arena.hpp>
#include <cairn/parallel/global_parameter.hpp>

#include <functional>
#include <mutex>
#include <vector>

namespace cairn {

namespace global_parameter_test {

/// A slice of the whole; without axes: this rank has nothing.
struct piece {
    shape here;
    parameter_layout layout;
};

tensor<double> numbered(const shape& s) {
    tensor<double> t(s);
    for (index_t i = 0; i < t.size(); ++i) t[i] = static_cast<double>(i) + 0.5;
    return t;
}

tensor<double> empty_or(const piece& p) { return p.here.rank() ? tensor<double>::zeros(p.here) : tensor<double>{}; }

/// Scatters the numbered whole from rank `root` to the pieces, checks them, gathers them to the last rank.
void there_and_back(const shape& whole, const std::vector<piece>& pieces, int root) {
    const int ranks = static_cast<int>(pieces.size());
    run_ranks(ranks, [&](threads_communicator& c) {
        const piece& mine = pieces[static_cast<std::size_t>(c.rank())];
        tensor<double> slice = empty_or(mine);
        const tensor<double> from = c.rank() == root ? numbered(whole) : tensor<double>{};
        scatter_global(c, from, slice, mine.layout, root, "w");
        for (index_t i = 0; i < slice.size(); ++i)
            require(slice[i] == static_cast<double>(mine.layout.global_index(mine.here, i)) + 0.5, "element ", i,
                    " of the slice is ", slice[i]);
        const tensor<double> back = gather_global(c, slice, mine.layout, ranks - 1, "w");
        require(back.empty() == (c.rank() != ranks - 1), "the whole is on another rank");
        if (back.empty()) return;
        require(back.shape() == whole, "the whole has shape ", back.shape());
        for (index_t i = 0; i < back.size(); ++i)
            require(back[i] == static_cast<double>(i) + 0.5, "element ", i, " of the whole is ", back[i]);
    });
}

parameter_layout within(const shape& global, std::array<index_t, shape::max_rank> begin, index_t parts = 1) {
    return {.global = global, .begin = begin, .parts = parts};
}

TEST_CASE("global parameter: slices of any shape make the whole, and come from it", "[global_parameter]") {
    const shape m{7, 5};
    SECTION("rows") {
        there_and_back(m, {{{3, 5}, within(m, {0})}, {{2, 5}, within(m, {3})}, {{2, 5}, within(m, {5})}}, 0);
    }
    SECTION("columns, and a rank with nothing of it") {
        there_and_back(m, {{}, {{7, 3}, within(m, {0, 0})}, {{7, 2}, within(m, {0, 3})}}, 1);
    }
    SECTION("blocks of both axes, each on two ranks") {
        std::vector<piece> pieces;
        for (int twice = 0; twice < 2; ++twice)
            for (const range& r : shards_of(7, 2))
                for (const range& k : shards_of(5, 2))
                    pieces.push_back({{r.count, k.count}, within(m, {r.begin, k.begin})});
        there_and_back(m, pieces, 3);
    }
    SECTION("whole on every rank") { there_and_back(m, {{m, {}}, {m, {}}}, 0); }
    SECTION("three parts, each cut alike, as Q, K and V") {
        const shape qkv{15, 2};
        there_and_back(qkv, {{{9, 2}, within(qkv, {0}, 3)}, {{6, 2}, within(qkv, {3}, 3)}}, 0);
    }
    SECTION("three axes") {
        const shape w{4, 3, 3};
        there_and_back(w, {{{1, 3, 3}, within(w, {0})}, {{3, 3, 3}, within(w, {1})}}, 1);
    }
}

TEST_CASE("global parameter: a part of three that is cut starts with the numbers of the whole", "[global_parameter]") {
    const shape whole{6, 2};
    parameter<double> all{.shape = whole, .init = {initializer::distribution::normal, 1, 0}};
    const arena<double> one({{"qkv/weight", &all}}, 3);
    for (const index_t begin : {index_t{0}, index_t{1}}) {
        parameter<double> slice{.shape = {3, 2}, .init = all.init, .layout = within(whole, {begin}, 3)};
        const arena<double> some({{"qkv/weight", &slice}}, 3);
        for (index_t part = 0; part < 3; ++part)
            for (index_t k = 0; k < 2; ++k) CHECK(slice.value(part, k) == all.value(2 * part + begin, k));
    }
    CHECK_FALSE(within(whole, {2}, 3).fits({3, 2}));
    CHECK_FALSE(within(whole, {0}, 3).fits({4, 2}));
}

TEST_CASE("global parameter: what makes no whole is refused", "[global_parameter]") {
    const shape m{7, 5};
    const auto refused = [&](const std::vector<piece>& pieces, const shape& whole) {
        return test::message_of([&] { there_and_back(whole, pieces, 0); });
    };
    using test::contains;
    CHECK(contains(refused({{{3, 5}, within(m, {0})}, {{3, 5}, within(m, {4})}}, m),
                   "parameter w: element 15 of (7, 5) is on none of the 2 ranks"));
    CHECK(contains(refused({{{7, 5}, {}}, {{2, 6}, within({7, 6}, {0})}}, m), "they are not of one model"));
    CHECK(
        contains(refused({{{7, 5}, {}}}, {5, 7}), "parameter w has shape (5, 7), but the ranks hold slices of (7, 5)"));
    CHECK(contains(refused({{}, {}}, m), "parameter w: no rank holds any of it"));
}

}  // namespace global_parameter_test

}  // namespace cairn
