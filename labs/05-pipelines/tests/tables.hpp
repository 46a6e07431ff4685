#pragma once
// Shared by the tests of this lab: schedules that came from a submission, the library's proof and simulation of them.

#include "judge.hpp"

#include <cairn/parallel/pipeline/schedule.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>
#include <cairn/parallel/pipeline/validate.hpp>

#include <algorithm>
#include <map>

namespace lab {

/// A schedule as it is sent: stage s on rank s mod ranks.
struct table {
    int ranks = 1, stages = 1, micro_batches = 1;
    std::vector<cairn::action_list> lists;
};
using interval = std::pair<double, double>;  // start, end
using intervals = std::vector<std::vector<interval>>;

template <>
struct names<cairn::action_kind> {
    static constexpr std::pair<cairn::action_kind, const char*> all[]{{cairn::action_kind::forward, "F"},
                                                                      {cairn::action_kind::backward, "B"},
                                                                      {cairn::action_kind::backward_input, "I"},
                                                                      {cairn::action_kind::backward_weight, "W"}};
};
template <>
struct members<cairn::action> {
    static auto of(auto& a) { return std::tie(a.kind, a.stage, a.micro_batch); }
};
template <>
struct members<table> {
    static auto of(auto& t) { return std::tie(t.ranks, t.stages, t.micro_batches, t.lists); }
};
template <>
struct members<cairn::stage_costs> {
    static auto of(auto& t) { return std::tie(t.forward, t.input, t.weight); }
};

/// The lists, a line a rank.
inline std::string text(const table& t) {
    std::string lines;
    for (std::size_t r = 0; r < t.lists.size(); ++r)
        lines += "rank " + std::to_string(r) + ": " + cairn::to_string(t.lists[r]) + "\n";
    return lines;
}

inline table table_of(int ranks, int stages, int micro_batches, const std::vector<std::string>& lists) {
    table t{ranks, stages, micro_batches, {}};
    for (const std::string& list : lists) t.lists.push_back(cairn::parse_actions(list));
    return t;
}
inline table table_of(const cairn::pipeline_program& p) { return {p.ranks, p.stages(), p.micro_batches, p.actions}; }

inline cairn::pipeline_program program_of(const table& t, const std::string& name) {
    cairn::pipeline_program p{name, t.ranks, t.micro_batches, t.stages / t.ranks, {}, false, t.lists};
    p.rank_of_stage = cairn::looped_placement(t.ranks, t.stages / t.ranks);
    return p;
}

/// The fault of a schedule for p ranks with v stages each and m micro-batches, or nothing: the library's proof,
/// micro-batches in order, and at most saved[rank] micro-batches of one stage kept.
inline std::string fault_of(const table& t, int p, int m, int v, const std::vector<int>& saved) {
    if (t.ranks != p || t.stages != p * v || t.micro_batches != m)
        return "the schedule says " + std::to_string(t.ranks) + " ranks, " + std::to_string(t.stages) + " stages and " +
               std::to_string(t.micro_batches) + " micro-batches, not " + std::to_string(p) + ", " +
               std::to_string(p * v) + " and " + std::to_string(m);
    const auto program = program_of(t, "of the submission");
    try {
        cairn::validate(program, {.serial_order = true});
    } catch (const cairn::error& error) {
        return error.what() + ("\n" + text(t));
    }
    const auto peak = cairn::peak_saved_micro_batches(program);
    for (std::size_t r = 0; r < t.lists.size(); ++r) {
        std::map<int, int> next;
        for (const auto& a : t.lists[r])
            if (a.kind == cairn::action_kind::backward_input && next[a.stage]++ != a.micro_batch)
                return "rank " + std::to_string(r) + ": " + cairn::concat(a) + " is out of order\n" + text(t);
        if (const int kept = static_cast<int>(std::lround(peak[r] * v)); kept > saved[r])
            return "rank " + std::to_string(r) + " keeps " + std::to_string(kept) +
                   " micro-batches at once, allowed are " + std::to_string(saved[r]) + "\n" + text(t);
    }
    return {};
}

/// How long each rank of a right schedule idles, with these times of a whole rank and messages that take no time.
inline double bubble_of(const table& t, const cairn::stage_costs& whole) {
    const auto program = program_of(t, "of the submission");
    return cairn::simulate(program, cairn::uniform_costs(program, whole)).makespan_bubble;
}

inline double whole_backward(const cairn::stage_costs& t) { return t.input + t.weight; }

/// Nothing, or what is wrong with a bubble that may be at most `formula`.
inline std::string bubble_fault(const table& t, const cairn::stage_costs& whole, double formula) {
    const double bubble = bubble_of(t, whole);
    if (bubble <= formula + 1e-9 * (1 + formula)) return {};
    return "the bubble is " + text(bubble) + ", by the formula " + text(formula) + ", with F = " + text(whole.forward) +
           ", I = " + text(whole.input) + ", W = " + text(whole.weight) + "\n" + text(t);
}

inline std::vector<int> saved_by_1f1b(int p, int m) {
    std::vector<int> all;
    for (int s = 0; s < p; ++s) all.push_back(std::min(p - s, m));
    return all;
}
inline std::vector<int> saved_by_interleaved(int p, int m, int v) {
    std::vector<int> all;
    for (int r = 0; r < p; ++r) all.push_back(std::min((v - 1) * p + 2 * (p - 1 - r) + 1, m * v));
    return all;
}
inline double zb_h1_bubble(int p, const cairn::stage_costs& t) {
    return (p - 1) * std::max({t.forward, t.input, t.forward + t.input - t.weight});
}

/// Nothing, or the first interval that differs from what the library's simulation says, and how.
inline std::string timeline_fault(const table& t, const std::vector<cairn::stage_costs>& times, double hop) {
    const auto got = call<intervals>("timeline", t, times, hop);
    const auto expected = cairn::simulate(program_of(t, "of the test"), times, hop);
    if (got.size() != t.lists.size()) return "there are intervals of " + std::to_string(got.size()) + " ranks";
    for (std::size_t r = 0; r < got.size(); ++r) {
        if (got[r].size() != t.lists[r].size())
            return "rank " + std::to_string(r) + " has " + std::to_string(got[r].size()) + " intervals for " +
                   std::to_string(t.lists[r].size()) + " actions";
        for (std::size_t i = 0; i < got[r].size(); ++i) {
            const auto& should = expected.actions[r][i];
            const auto [start, end] = got[r][i];
            const double bound = 1e-9 * (1 + expected.makespan);
            if (!(std::abs(start - should.start) <= bound) || !(std::abs(end - should.end) <= bound))
                return "rank " + std::to_string(r) + ", " + cairn::concat(t.lists[r][i]) + " runs from " + text(start) +
                       " to " + text(end) + ", expected " + text(should.start) + " to " + text(should.end) + ", hop " +
                       text(hop) + "\n" + text(t);
        }
    }
    return {};
}

/// "deadlock, rank 0, position 1"
inline std::string checked(const table& t) {
    const auto [what, rank, position] = call<std::tuple<std::string, int, int>>("check", t);
    return what + ", rank " + std::to_string(rank) + ", position " + std::to_string(position);
}

}  // namespace lab
