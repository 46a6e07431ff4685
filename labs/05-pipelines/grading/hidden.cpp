// The tests that grade beside the public ones.

#include "../tests/tables.hpp"

#include <array>
#include <set>

using lab::table;

namespace {

/// Times drawn from the seed, in [0.5, 1.5) times a size.
cairn::stage_costs times(std::uint32_t stream, double size = 1) {
    const auto drawn = lab::numbers<double>(3, stream);
    return {size * (1 + drawn[0] / 2), size * (1 + drawn[1] / 2), size * (1 + drawn[2] / 2)};
}

/// A random schedule that is right: in each turn one rank adds something that can run.
table random_table(int p, int v, int m, std::uint32_t stream) {
    const cairn::random_stream random{lab::seed(), stream, 2};
    table t{p, p * v, m, std::vector<cairn::action_list>(static_cast<std::size_t>(p))};
    using cairn::action_kind;
    enum : std::size_t { f, i, w };
    std::vector<std::vector<std::array<bool, 3>>> done(static_cast<std::size_t>(t.stages),
                                                       std::vector<std::array<bool, 3>>(static_cast<std::size_t>(m)));
    const auto at = [&](int s, int k) -> std::array<bool, 3>& {
        return done[static_cast<std::size_t>(s)][static_cast<std::size_t>(k)];
    };
    for (std::uint64_t turn = 0;; ++turn) {
        std::vector<cairn::action> ready;
        for (int s = 0; s < t.stages; ++s)
            for (int k = 0; k < m; ++k) {
                if (!at(s, k)[f] && (s == 0 || at(s - 1, k)[f])) ready.push_back({action_kind::forward, s, k});
                if (at(s, k)[f] && !at(s, k)[i] && (s + 1 == t.stages || at(s + 1, k)[i])) {
                    ready.push_back({action_kind::backward, s, k});
                    ready.push_back({action_kind::backward_input, s, k});
                }
                if (at(s, k)[i] && !at(s, k)[w]) ready.push_back({action_kind::backward_weight, s, k});
            }
        if (ready.empty()) return t;
        const cairn::action a = ready[random.below(ready.size(), turn)];
        auto& here = at(a.stage, a.micro_batch);
        if (a.kind == action_kind::forward) here[f] = true;
        if (a.kind == action_kind::backward || a.kind == action_kind::backward_input) here[i] = true;
        if (a.kind == action_kind::backward || a.kind == action_kind::backward_weight) here[w] = true;
        t.lists[static_cast<std::size_t>(a.stage % p)].push_back(a);
    }
}

/// Where the ranks stand when none can go on: by asking again and again which action has all that it needs.
std::string deadlock_of(const table& t) {
    std::set<std::string> done;  // "1F2", "1I2", "1W2"; a B is both
    const auto key = [](int s, char kind, int m) { return std::to_string(s) + kind + std::to_string(m); };
    std::vector<std::size_t> next(t.lists.size());
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = t.lists.size(); r-- > 0;) {
            if (next[r] == t.lists[r].size()) continue;
            const auto [kind, s, m] = t.lists[r][next[r]];
            const char c = static_cast<char>(kind);
            std::set<std::string> needs;
            if (c == 'F' && s > 0) needs.insert(key(s - 1, 'F', m));
            if (c == 'B' || c == 'I') needs.insert(key(s, 'F', m));
            if ((c == 'B' || c == 'I') && s + 1 < t.stages) needs.insert(key(s + 1, 'I', m));
            if (c == 'W') needs.insert(key(s, 'I', m));
            if (!std::includes(done.begin(), done.end(), needs.begin(), needs.end())) continue;
            if (c != 'B') done.insert(key(s, c, m));
            if (c == 'B') done.insert(key(s, 'I', m)), done.insert(key(s, 'W', m));
            ++next[r], moved = true;
        }
    }
    for (std::size_t r = 0; r < t.lists.size(); ++r)
        if (next[r] < t.lists[r].size())
            return "deadlock, rank " + std::to_string(r) + ", position " + std::to_string(next[r]);
    return "none, rank -1, position -1";
}

}  // namespace

TEST_CASE("schedules: any number of ranks and micro-batches") {
    for (const int p : {1, 2, 3, 5, lab::number(6, 9, 1)})
        for (const int m : {1, 2, 4, p, lab::number(9, 20, 2)}) {
            INFO(lab::text(p, "rank") << ", " << m << " micro-batches");
            const auto whole = times(3);
            const double formula = (p - 1) * (whole.forward + lab::whole_backward(whole));
            const auto g = lab::call<table>("gpipe", p, m);
            CHECK(lab::text(g) == lab::text(lab::table_of(cairn::gpipe({p, m, 1}))));
            const auto t = lab::call<table>("one_f_one_b", p, m);
            REQUIRE(lab::fault_of(t, p, m, 1, lab::saved_by_1f1b(p, m)) == "");
            REQUIRE(lab::bubble_fault(t, whole, formula) == "");
        }
}

TEST_CASE("check: deadlocks and mistakes of long schedules") {
    std::uint32_t stream = 100;
    for (const auto& [p, v, m] : {std::tuple{1, 1, 6}, {3, 1, 5}, {2, 3, 4}, {4, 2, lab::number(3, 6, 4)}}) {
        const table right = random_table(p, v, m, ++stream);
        INFO("of a schedule on " << lab::text(p, "rank") << " that began as\n" << lab::text(right));
        CHECK(lab::checked(right) == "none, rank -1, position -1");
        const cairn::random_stream random{lab::seed(), ++stream, 3};
        for (std::uint64_t trial = 0; trial < 6; ++trial) {
            table t = right;
            const auto r = static_cast<std::size_t>(random.below(t.lists.size(), 10 * trial));
            cairn::action_list& list = t.lists[r];
            const auto i = static_cast<std::size_t>(random.below(list.size(), 10 * trial + 1)),
                       j = static_cast<std::size_t>(random.below(list.size(), 10 * trial + 2));
            const std::string rank = ", rank " + std::to_string(r) + ", position ";
            const cairn::action a = list[i];
            std::string expected;
            if (trial < 3) {
                std::swap(list[i], list[j]);
                expected = deadlock_of(t);
            } else if (trial == 3) {
                list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
                expected = "missing" + rank + "-1";
            } else if (trial == 4) {
                list.push_back(a);
                expected = "repeated" + rank + std::to_string(list.size() - 1);
            } else {
                list[i].stage += t.stages;
                list[j].micro_batch = -1;
                expected = "wrong_place" + rank + std::to_string(std::min(i, j));
            }
            INFO("changed to\n" << lab::text(t));
            CHECK(lab::checked(t) == expected);
        }
    }
}

TEST_CASE("timeline: any schedule, any times, messages that take time") {
    std::uint32_t stream = 200;
    for (const auto& [p, v, m] : {std::tuple{1, 1, 4}, {1, 3, 2}, {3, 1, 5}, {2, 3, 4}, {4, 2, lab::number(3, 6, 5)}})
        for (const double hop : {0.0, 0.3}) {
            const table t = random_table(p, v, m, ++stream);
            std::vector<cairn::stage_costs> of_stage;
            for (int s = 0; s < t.stages; ++s) of_stage.push_back(times(++stream));
            REQUIRE(lab::timeline_fault(t, of_stage, hop) == "");
            const auto program = lab::program_of(t, "of the test");
            const auto expected = cairn::simulate(program, of_stage, hop);
            lab::intervals runs;
            double first = expected.makespan;
            for (const auto& rank : expected.actions) {
                runs.emplace_back();
                for (const auto& i : rank) runs.back().push_back({i.start, i.end}), first = std::min(first, i.start);
            }
            CHECK(lab::call<double>("makespan", runs) == Approx(expected.makespan + first).epsilon(1e-12));
            const auto idle = lab::call<std::vector<double>>("idle", runs);
            REQUIRE(idle.size() == runs.size());
            std::vector<int> saved;
            for (std::size_t r = 0; r < runs.size(); ++r) {
                double busy = 0;
                for (const auto& [start, end] : runs[r]) busy += end - start;
                CHECK(idle[r] == Approx(expected.makespan + first - busy).margin(1e-9));
                saved.push_back(static_cast<int>(std::lround(expected.peak[r] * v)));
            }
            INFO(lab::text(t));
            CHECK(lab::call<std::vector<int>>("most_saved", t) == saved);
        }
}

TEST_CASE("interleaved: any number of ranks, micro-batches and chunks") {
    for (const auto& [p, rounds, v] :
         {std::tuple{1, 3, 2}, {2, 1, 4}, {3, 3, 1}, {4, 2, 3}, {lab::number(5, 7, 6), 2, 2}}) {
        const int m = p * rounds;
        INFO(lab::text(p, "rank") << ", " << m << " micro-batches, " << lab::text(v, "chunk"));
        const auto whole = times(7, 1.5);
        const double formula = (p - 1) * (whole.forward + lab::whole_backward(whole)) / v;
        const auto t = lab::call<table>("interleaved", p, m, v);
        REQUIRE(lab::fault_of(t, p, m, v, lab::saved_by_interleaved(p, m, v)) == "");
        REQUIRE(lab::bubble_fault(t, whole, formula) == "");
    }
    CHECK(lab::thrown("interleaved", 4, 6, 2) == "invalid_argument");
}

TEST_CASE("zero bubble: any times, in the memory of 1F1B") {
    std::uint32_t stream = 300;
    for (const int p : {1, 2, 3, 5, lab::number(6, 8, 8)})
        for (const int m : {1, 2, p, p + 1, lab::number(9, 18, 9)}) {
            INFO(lab::text(p, "rank") << ", " << m << " micro-batches");
            const auto t = lab::call<table>("zb_h1", p, m);
            REQUIRE(lab::fault_of(t, p, m, 1, std::vector<int>(static_cast<std::size_t>(p), std::min(p, m))) == "");
            for (const auto& whole : {times(++stream), cairn::stage_costs{1, 2, 1}, cairn::stage_costs{1, 1, 2}})
                if (m >= p) REQUIRE(lab::bubble_fault(t, whole, lab::zb_h1_bubble(p, whole)) == "");
        }
}
