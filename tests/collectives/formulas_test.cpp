// Messages of each collective, counted, against the formulas at the heads of the files: messages and bytes of a rank,
// and rounds.

#include "catch.hpp"

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/all_to_all.hpp>
#include <cairn/comm/collectives/barrier.hpp>
#include <cairn/comm/collectives/broadcast.hpp>
#include <cairn/comm/collectives/sent.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/comm/counting_communicator.hpp>
#include <cairn/comm/require_equal.hpp>
#include <cairn/comm/threads.hpp>

#include <bit>

namespace cairn {

namespace {

using counter = counting_communicator<threads_communicator>;
constexpr index_t elements = 5040;  // every number of ranks up to 9 divides it
constexpr index_t payload = elements * 4;

struct group_counts {
    std::int64_t messages = 0, bytes = 0, rounds = 0;           // the largest of a rank
    std::int64_t all_messages = 0, all_bytes = 0, reduced = 0;  // of all ranks together
};

/// One collective on `elements` floats.
template <class Action>
group_counts counted(int ranks, Action action) {
    std::vector<communication_counts> all(static_cast<std::size_t>(ranks));
    run_ranks(ranks, [&](threads_communicator& threads) {
        counter c(threads);
        std::vector<float> data(elements, 1.0f);
        action(c, std::span<float>(data));
        all[static_cast<std::size_t>(c.rank())] = c.counts();
    });
    group_counts sums;
    for (const communication_counts& c : all) {
        sums.messages = std::max(sums.messages, c.messages);
        sums.bytes = std::max(sums.bytes, c.bytes);
        sums.rounds = std::max(sums.rounds, c.rounds);
        sums.all_messages += c.messages;
        sums.all_bytes += c.bytes;
        sums.reduced += c.reduced_bytes;
    }
    return sums;
}

int floor_log(int p) { return static_cast<int>(std::bit_width(static_cast<unsigned>(p))) - 1; }
int ceil_log(int p) { return static_cast<int>(std::bit_width(static_cast<unsigned>(p - 1))); }

}  // namespace

TEST_CASE("closed forms of each rank's messages and bytes are those counted", "[collectives]") {
    for (int p = 1; p <= 9; ++p)
        for (const index_t n : {1, 5, 1009, 20'011})
            run_ranks(p, [&](threads_communicator& threads) {
                counter c(threads);
                std::vector<float> data(static_cast<std::size_t>(n), 1.0f);
                const auto check = [&](const char* what, sent_messages told, auto&& run) {
                    const communication_counts before = c.counts();
                    run(std::span<float>(data));
                    const sent_messages sent{c.counts().messages - before.messages, c.counts().bytes - before.bytes};
                    require(sent == told, what, " of ", n, " on rank ", c.rank(), " of ", p, ": ", sent.messages, ", ",
                            sent.bytes, " bytes; formulas say ", told.messages, ", ", told.bytes);
                };
                for (const auto& [algorithm, name] : all_reduce_names) {
                    using enum all_reduce_algorithm;
                    if (algorithm == vendor || algorithm == automatic || algorithm == hierarchical) continue;
                    check(name, all_reduce_sends(algorithm, n, 4, p, c.rank()),
                          [&, a = algorithm](auto d) { all_reduce(c, d, {.algorithm = a}); });
                }
                node_groups<counter> groups(c);
                check("hierarchical", all_reduce_sends(all_reduce_algorithm::hierarchical, n, 4, p, c.rank()),
                      [&](auto d) { hierarchical_all_reduce(groups, d); });
                check("all-gather", all_gather_sends(shards_of(n, p), 4, c.rank()), [&](auto d) { all_gather(c, d); });
                check("reduce-scatter", reduce_scatter_sends(shards_of(n, p), 4, c.rank()),
                      [&](auto d) { reduce_scatter(c, d); });
            });
}

TEST_CASE("formulas: ring", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        const group_counts c = counted(p, [](counter& w, auto data) { ring_all_reduce(w, data); });
        CHECK(c.messages == 2 * (p - 1));
        CHECK(c.rounds == 2 * (p - 1));
        CHECK(c.bytes == 2 * (p - 1) * payload / p);
        CHECK(c.all_bytes == 2 * (p - 1) * payload);
        CHECK(c.reduced == (p - 1) * payload);
    }
}

TEST_CASE("formulas: recursive doubling, with up to two more rounds where p is no power of two", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        const group_counts c = counted(p, [](counter& w, auto data) { recursive_doubling_all_reduce(w, data); });
        const int lg = floor_log(p), core = 1 << lg, extra = p - core;
        // Two more only where some chain of messages goes through both a rank that took over and, later, one that hands
        // back.
        CHECK(c.rounds >= lg + (extra ? 1 : 0));
        CHECK(c.rounds <= lg + (extra ? 2 : 0));
        CHECK(c.messages == lg + (extra ? 1 : 0));  // of a rank that takes over
        CHECK(c.all_messages == core * lg + 2 * extra);
        CHECK(c.all_bytes == (core * lg + 2 * extra) * payload);
        CHECK(c.reduced == (core * lg + extra) * payload);
    }
}

TEST_CASE("formulas: halving and doubling, with two more rounds where p is no power of two", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        const group_counts c = counted(p, [](counter& w, auto data) { halving_doubling_all_reduce(w, data); });
        const int lg = floor_log(p), core = 1 << lg, extra = p - core;
        CHECK(c.rounds == 2 * lg + (extra ? 2 : 0));
        CHECK(c.messages == 2 * lg + (extra ? 1 : 0));
        CHECK(c.all_messages == 2 * core * lg + 2 * extra);
        CHECK(c.all_bytes == 2 * (core - 1) * payload + 2 * extra * payload);
        CHECK(c.reduced == (core - 1) * payload + extra * payload);
        CHECK(c.bytes == 2 * (core - 1) * payload / core + (extra ? payload : 0));
    }
}

TEST_CASE("formulas: tree of one segment", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        const group_counts c = counted(p, [](counter& w, auto data) { tree_all_reduce(w, data); });
        CHECK(c.rounds >= 2 * floor_log(p));
        CHECK(c.all_messages == 2 * (p - 1));
        CHECK(c.all_bytes == 2 * (p - 1) * payload);
        CHECK(c.reduced == (p - 1) * payload);
    }
}

TEST_CASE("formulas: hierarchical, n/g between nodes", "[collectives]") {
    run_ranks(6, {.ranks_per_node = 3}, [](threads_communicator& threads) {
        counter c(threads);
        node_groups<counter> groups(c, counter(threads.split_node()));
        c.reset();
        std::vector<float> data(elements, 1.0f);
        hierarchical_all_reduce(groups, std::span<float>(data));
        const index_t inside = 2 * (2 * payload / 3);
        require(groups.across().counts().bytes == payload / 3, "between nodes: ", groups.across().counts().bytes);
        require(groups.node().counts().bytes == inside, "inside: ", groups.node().counts().bytes);
        require(data[0] == 6.0f, "sum ", data[0]);
    });
}

TEST_CASE("formulas: reduce-scatter, all-gather, all-to-all, broadcast, barrier", "[collectives]") {
    for (int p = 1; p <= 9; ++p) {
        const group_counts scattered = counted(p, [](counter& w, auto data) { reduce_scatter(w, data); });
        CHECK(scattered.rounds == p - 1);
        CHECK(scattered.bytes == (p - 1) * payload / p);
        CHECK(scattered.reduced == (p - 1) * payload);
        const group_counts gathered = counted(p, [](counter& w, auto data) { all_gather(w, data); });
        CHECK(gathered.rounds == p - 1);
        CHECK(gathered.bytes == (p - 1) * payload / p);
        const group_counts exchanged = counted(p, [](counter& w, std::span<float> data) {
            std::vector<float> in(data.size());
            all_to_all(w, std::span<const float>(data), std::span<float>(in));
        });
        CHECK(exchanged.messages == p - 1);
        CHECK(exchanged.bytes == (p - 1) * payload / p);
        const group_counts spread = counted(p, [](counter& w, auto data) { broadcast(w, data, 0); });
        CHECK(spread.all_messages == p - 1);
        CHECK(spread.messages == ceil_log(p));
        CHECK(spread.all_bytes == (p - 1) * payload);
        const group_counts met = counted(p, [](counter& w, auto) { barrier(w); });
        CHECK(met.messages == ceil_log(p));
        CHECK(met.rounds == ceil_log(p));
        CHECK(met.all_bytes == 0);
    }
}

TEST_CASE("formulas: texts of all ranks go up a tree and back", "[collectives]") {
    const auto text_of = [](int r) { return std::string(static_cast<std::size_t>(37 * r % 50), 'a' + char(r % 26)); };
    for (int p = 1; p <= 17; ++p) {
        const group_counts c = counted(p, [&](counter& w, auto) {
            const std::vector<std::string> all = all_gather_text(w, text_of(w.rank()));
            require(std::ssize(all) == w.size(), all.size(), " texts");
            for (int r = 0; r < w.size(); ++r)
                require(all[static_cast<std::size_t>(r)] == text_of(r), "the text of rank ", r, " on ", w.rank());
        });
        CHECK(c.all_messages == 4 * (p - 1));
        CHECK(c.messages <= 2 + 2 * ceil_log(p));
    }
}

TEST_CASE("formulas: values of all ranks go up a tree and down again", "[collectives]") {
    for (int p = 1; p <= 17; ++p) {
        const group_counts c = counted(p, [](counter& w, auto) {
            const std::vector<int> all = values_of_ranks(w, 100 + w.rank());
            require(std::ssize(all) == w.size(), all.size(), " values");
            for (int r = 0; r < w.size(); ++r)
                require(all[static_cast<std::size_t>(r)] == 100 + r, "the value of rank ", r, " on ", w.rank());
        });
        CHECK(c.all_messages == 2 * (p - 1));
        CHECK(c.messages <= 1 + ceil_log(p));
    }
}

TEST_CASE("all-reduce: an error names what is reduced", "[collectives]") {
    for (const auto& [algorithm, name] : all_reduce_names) {
        if (algorithm == all_reduce_algorithm::vendor) continue;
        const auto late = [&, which = algorithm](threads_communicator& c) {
            std::vector<float> data(300'000, 1.0f);
            node_groups<threads_communicator> groups(c);
            if (c.rank() != 0) return;  // and never comes
            all_reduce(c, std::span<float>(data), {.algorithm = which, .label = "gradients, bucket 3"}, &groups);
        };
        CHECK_THROWS_WITH(run_ranks(2, {.time_limit = 0.2}, late), Catch::Contains("(gradients, bucket 3)"));
    }
}

}  // namespace cairn
