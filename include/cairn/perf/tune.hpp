#pragma once
// Tuning: which of many configurations of a run is best by time, by energy, or by two goals at once, where no single
// one is best but a front of those that no other beats in both.
//   tuning_space    dimensions, each with alternatives; which settings a choice of alternatives comes to
//   tuning_log      tries configurations, each once, within a budget; what it knows
//   tune/…          searches, a short file each: they say which configurations to try next
// Before anything is tried, a lower bound of its outcome is asked for: what could not be on the front is left alone.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What may be chosen, and how; the first alternative is the plain one.
struct tuning_dimension {
    std::string name;
    std::vector<std::string> alternatives;
};

/// By dimension, the place of its alternative.
using tuning_choice = std::vector<std::size_t>;
/// "section.key=value", in the order of dimensions. Two choices with the same settings are one configuration.
using tuning_settings = std::vector<std::string>;

struct tuning_space {
    std::vector<tuning_dimension> dimensions;
    /// Nothing where the alternatives do not go together.
    std::function<std::optional<tuning_settings>(const tuning_choice&)> settings;

    tuning_choice plain() const { return tuning_choice(dimensions.size(), 0); }

    /// f(choice) for every configuration, once.
    template <class F>
    void for_each(F&& f) const {
        std::set<tuning_settings> seen;
        tuning_choice at = plain();
        for (;;) {
            if (const auto s = settings(at); s && seen.insert(*s).second) f(std::as_const(at));
            std::size_t d = 0;
            while (d < at.size() && ++at[d] == dimensions[d].alternatives.size()) at[d++] = 0;
            if (d == at.size()) return;
        }
    }

    /// All other configurations that differ from `from` in one dimension.
    std::vector<tuning_choice> neighbours(const tuning_choice& from) const {
        std::vector<tuning_choice> all;
        for (std::size_t d = 0; d < from.size(); ++d)
            for (std::size_t a = 0; a < dimensions[d].alternatives.size(); ++a) {
                tuning_choice next = from;
                next[d] = a;
                if (a != from[d] && settings(next)) all.push_back(std::move(next));
            }
        return all;
    }
};

/// Of a training step of one configuration; all of it is better the less it is.
struct tuning_outcome {
    double seconds = 0;
    double joules = 0;            // of all ranks and links
    double bytes = 0;             // that the busiest rank sends
    double memory = 0;            // bytes that the fullest rank holds
    std::string limit = {};       // what takes most of the time
    std::string impossible = {};  // why it cannot run; empty: it can

    bool possible() const { return impossible.empty(); }
};

/// What is to become less: one goal or two.
using tuning_goal = double tuning_outcome::*;
using tuning_goals = std::vector<tuning_goal>;

/// Whether `a` is at least as good as `b` by every goal.
inline bool as_good(const tuning_outcome& a, const tuning_outcome& b, const tuning_goals& goals) {
    return std::ranges::all_of(goals, [&](tuning_goal g) { return a.*g <= b.*g; });
}

/// A configuration that was tried.
struct tuning_trial {
    tuning_choice choice;
    tuning_settings settings;
    tuning_outcome outcome;
};

/// Those that no other beats by every goal, ordered by the first. Of equal ones the one that was tried first.
inline std::vector<tuning_trial> front_of(const std::vector<tuning_trial>& trials, const tuning_goals& goals) {
    std::vector<tuning_trial> front;
    for (const tuning_trial& t : trials) {
        if (!t.outcome.possible()) continue;
        const auto beats = [&](const tuning_trial& other) { return as_good(other.outcome, t.outcome, goals); };
        if (std::ranges::any_of(front, beats)) continue;
        std::erase_if(front, [&](const tuning_trial& other) { return as_good(t.outcome, other.outcome, goals); });
        front.push_back(t);
    }
    std::ranges::sort(front, {}, [&](const tuning_trial& t) { return t.outcome.*goals.front(); });
    return front;
}

/// What to start a run with: of the trials whose goal is within `margin` of the best, as a share of it, the one with
/// the fewest settings, and of those the best. A gain below what the outcomes are known to is worth no setting. Null:
/// nothing can run.
inline const tuning_trial* simplest_of_best(const std::vector<tuning_trial>& trials, tuning_goal goal, double margin) {
    double best = std::numeric_limits<double>::infinity();
    for (const tuning_trial& t : trials)
        if (t.outcome.possible()) best = std::min(best, t.outcome.*goal);
    const auto rank = [&](const tuning_trial& t) { return std::pair(t.settings.size(), t.outcome.*goal); };
    const tuning_trial* chosen = nullptr;
    for (const tuning_trial& t : trials)
        if (t.outcome.possible() && t.outcome.*goal <= best * (1 + margin) && (!chosen || rank(t) < rank(*chosen)))
            chosen = &t;
    return chosen;
}

/// Trials worth measuring before one is chosen, at most `count`: the plain configuration, the best of each alternative
/// of the first dimension, and then the best of all, as far as they are expected within `margin` of the best. Of those
/// that are expected to come out alike, the one with the fewest settings.
inline std::vector<tuning_trial> finalists(std::vector<tuning_trial> trials, tuning_goal goal, std::size_t count,
                                           double margin) {
    std::erase_if(trials, [](const tuning_trial& t) { return !t.outcome.possible(); });
    std::ranges::sort(trials, {}, [&](const auto& t) { return std::pair(t.outcome.*goal, t.settings.size()); });
    std::vector<tuning_trial> taken;
    const auto take = [&](const tuning_trial& t, bool anyway) {
        const bool known = std::ranges::any_of(
            taken, [&](const auto& o) { return std::abs(o.outcome.*goal / (t.outcome.*goal) - 1) < 1e-3; });
        const bool near = t.outcome.*goal <= trials.front().outcome.*goal * (1 + margin);
        if (taken.size() < count && (anyway || (near && !known))) taken.push_back(t);
    };
    const auto is_plain = [](const tuning_trial& t) { return t.settings.empty(); };
    if (const auto plain = std::ranges::find_if(trials, is_plain); plain != trials.end()) take(*plain, true);
    std::set<std::size_t> seen;
    for (const tuning_trial& t : trials)
        if (seen.insert(t.choice.front()).second) take(t, false);
    for (const tuning_trial& t : trials) take(t, false);
    return taken;
}

/// The area that a front of two goals dominates below the corner `most` (Zitzler and Thiele 1999).
inline double hypervolume(const std::vector<tuning_trial>& front, const tuning_goals& goals,
                          std::array<double, 2> most) {
    require(goals.size() == 2, "hypervolume: of two goals, not of ", goals.size());
    double area = 0, ceiling = most[1];  // of the second goal, by all points before
    for (const tuning_trial& t : front) {
        const double first = t.outcome.*goals[0], second = t.outcome.*goals[1];
        if (first >= most[0] || second >= ceiling) continue;
        area += (most[0] - first) * (ceiling - second);
        ceiling = second;
    }
    return area;
}

/// Tries configurations, and keeps what came out. `run`: outcomes of several, in their order. `bound`: an outcome that
/// is in nothing worse than the true one. `budget`: trials at most.
class tuning_log {
public:
    using runner = std::function<std::vector<tuning_outcome>(const std::vector<tuning_settings>&)>;
    using bounder = std::function<tuning_outcome(const tuning_choice&)>;

    tuning_log(const tuning_space& space, runner run, bounder bound, std::size_t budget)
        : space_(space), run_(std::move(run)), bound_(std::move(bound)), budget_(budget) {}

    const tuning_space& space() const { return space_; }
    const std::vector<tuning_trial>& trials() const { return trials_; }
    tuning_outcome bound(const tuning_choice& c) const { return bound_(c); }
    void add_budget(std::size_t trials) { budget_ += trials; }
    std::size_t left() const { return budget_ - trials_.size(); }
    std::size_t pruned() const { return pruned_.size(); }

    /// Tries those of `wanted` that are new and, by their bound, could be on the front of `goals`, as far as the budget
    /// goes, the lowest bounds first. Without goals all that are new, in their order.
    void try_all(const std::vector<tuning_choice>& wanted, const tuning_goals& goals) {
        struct candidate {
            tuning_choice choice;
            tuning_settings settings;
            tuning_outcome bound;
        };
        std::vector<candidate> next;
        std::vector<tuning_trial> front;
        if (!goals.empty()) front = front_of(trials_, goals);
        std::set<tuning_settings> taken;
        for (const tuning_choice& c : wanted) {
            auto settings = space_.settings(c);
            if (!settings || known_.contains(*settings) || !taken.insert(*settings).second) continue;
            tuning_outcome least = bound_(c);
            if (std::ranges::any_of(front, [&](const auto& t) { return as_good(t.outcome, least, goals); })) {
                pruned_.insert(*settings);
                continue;
            }
            next.push_back({c, std::move(*settings), std::move(least)});
        }
        if (!goals.empty())
            std::ranges::stable_sort(next, {}, [&](const candidate& c) { return c.bound.*goals.front(); });
        next.resize(std::min(next.size(), left()));
        std::vector<tuning_settings> all;
        for (const candidate& c : next) all.push_back(c.settings);
        std::vector<tuning_outcome> outcomes = run_(all);
        for (std::size_t i = 0; i < next.size(); ++i) {
            known_[next[i].settings] = trials_.size();
            trials_.push_back({std::move(next[i].choice), std::move(next[i].settings), std::move(outcomes.at(i))});
        }
    }

    /// What is known of a choice; null: it was not tried.
    const tuning_trial* of(const tuning_choice& c) const {
        const auto settings = space_.settings(c);
        if (!settings) return nullptr;
        const auto at = known_.find(*settings);
        return at == known_.end() ? nullptr : &trials_[at->second];
    }
    /// By one goal, infinity where the choice was not tried or is impossible.
    double value(const tuning_choice& c, tuning_goal goal) const {
        const tuning_trial* const t = of(c);
        return t && t->outcome.possible() ? t->outcome.*goal : std::numeric_limits<double>::infinity();
    }

private:
    const tuning_space& space_;
    runner run_;
    bounder bound_;
    std::size_t budget_;
    std::vector<tuning_trial> trials_;
    std::map<tuning_settings, std::size_t> known_;  // where in trials_
    std::set<tuning_settings> pruned_;              // left alone for their bounds
};

}  // namespace cairn
