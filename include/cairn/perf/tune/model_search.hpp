#pragma once
// Model-guided search (sequential model-based optimization, Hutter, Hoos and Leyton-Brown 2011), for one goal or two.
// The model of a configuration's outcome is its lower bound times a factor of each of its alternatives:
//   log(outcome / bound) = mean + Σ over dimensions of the effect of its alternative
// What formulas know is in the bound; what they do not, the effects learn from all trials so far, by least squares
// (backfitting, each effect drawn towards 0 where it was seen seldom). Every alternative is tried once, then what the
// model puts on the front, a few at a time, until that has been tried.

#include <cairn/perf/tune.hpp>
#include <cairn/perf/tune/local_search.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

namespace cairn {

/// Of one goal: see the top of the file.
class tuning_model {
public:
    /// Fits `known`: choices, and the logarithm of outcome over bound.
    tuning_model(const tuning_space& space, const std::vector<std::pair<tuning_choice, double>>& known) {
        for (const tuning_dimension& d : space.dimensions) effects_.emplace_back(d.alternatives.size(), 0.0);
        for (const auto& [choice, value] : known) mean_ += value / static_cast<double>(known.size());
        constexpr int sweeps = 50;
        for (int i = 0; i < sweeps; ++i)
            for (std::size_t d = 0; d < effects_.size(); ++d) {
                constexpr double prior = 0.1;  // of a trial, whose effect is 0
                std::vector<double> sum(effects_[d].size(), 0.0), count(effects_[d].size(), prior);
                for (const auto& [choice, value] : known) {
                    sum[choice[d]] += value - (*this)(choice) + effects_[d][choice[d]];
                    count[choice[d]] += 1;
                }
                for (std::size_t a = 0; a < sum.size(); ++a) effects_[d][a] = sum[a] / count[a];
            }
    }

    double operator()(const tuning_choice& c) const {
        double all = mean_;
        for (std::size_t d = 0; d < c.size(); ++d) all += effects_[d][c[d]];
        return all;
    }

private:
    std::vector<std::vector<double>> effects_;
    double mean_ = 0;
};

namespace detail {

/// Alternatives that no trial had, each in the configuration of the lowest bound by `goal`.
inline std::vector<tuning_choice> unseen_alternatives(const tuning_log& log, const std::vector<tuning_choice>& all,
                                                      const std::vector<tuning_outcome>& bounds, tuning_goal goal) {
    std::vector<tuning_choice> next;
    for (std::size_t d = 0; d < log.space().dimensions.size(); ++d)
        for (std::size_t a = 0; a < log.space().dimensions[d].alternatives.size(); ++a) {
            const auto has = [&](const tuning_choice& c) { return c[d] == a; };
            if (std::ranges::any_of(log.trials(), has, &tuning_trial::choice)) continue;
            std::size_t best = all.size();
            for (std::size_t i = 0; i < all.size(); ++i)
                if (has(all[i]) && (best == all.size() || bounds[i].*goal < bounds[best].*goal)) best = i;
            if (best < all.size()) next.push_back(all[best]);
        }
    return next;
}

/// Outcomes of all configurations by the model, of those that were tried as they are.
inline std::vector<tuning_trial> expected_outcomes(const tuning_log& log, const std::vector<tuning_choice>& all,
                                                   const std::vector<tuning_outcome>& bounds,
                                                   const tuning_goals& goals) {
    std::vector<tuning_trial> expected;
    for (const tuning_choice& c : all)
        if (const tuning_trial* const tried = log.of(c))
            expected.push_back(*tried);
        else
            expected.push_back({c, {}, {}});
    for (const tuning_goal goal : goals) {
        double least = std::numeric_limits<double>::infinity();  // of the outcomes; no bound counts as far below
        for (const tuning_trial& t : log.trials())
            if (t.outcome.possible()) least = std::min(least, t.outcome.*goal);
        const auto bound = [&](const tuning_outcome& b) { return std::max({b.*goal, least / 10, 1e-30}); };
        std::vector<std::pair<tuning_choice, double>> known;
        for (const tuning_trial& t : log.trials())
            if (t.outcome.possible())
                known.emplace_back(t.choice, std::log(std::max(t.outcome.*goal, 1e-30) / bound(log.bound(t.choice))));
        const tuning_model model(log.space(), known);
        for (std::size_t i = 0; i < all.size(); ++i)
            if (expected[i].settings.empty() && !log.of(all[i]))
                expected[i].outcome.*goal = bound(bounds[i]) * std::exp(model(all[i]));
    }
    return expected;
}

}  // namespace detail

/// See the top of the file. What is left of the budget goes to local search.
inline void model_search(tuning_log& log, const tuning_goals& goals) {
    const tuning_space& space = log.space();
    std::vector<tuning_choice> all;
    std::vector<tuning_outcome> bounds;
    space.for_each([&](const tuning_choice& c) {
        all.push_back(c);
        bounds.push_back(log.bound(c));
    });
    log.try_all({space.plain()}, {});
    log.try_all(space.neighbours(space.plain()), {});
    log.try_all(detail::unseen_alternatives(log, all, bounds, goals.front()), {});
    constexpr std::size_t at_once = 4;
    while (log.left() > 0) {
        std::vector<tuning_choice> front, next;
        for (tuning_trial& t : front_of(detail::expected_outcomes(log, all, bounds, goals), goals))
            if (!log.of(t.choice)) front.push_back(std::move(t.choice));
        if (front.empty()) return local_search(log, goals);
        const std::size_t count = std::min(at_once, front.size());
        for (std::size_t i = 0; i < count; ++i) next.push_back(front[i * front.size() / count]);
        log.try_all(next, {});
    }
}

}  // namespace cairn
