#pragma once
// Model-guided search (sequential model-based optimization, Hutter, Hoos and Leyton-Brown 2011), for one goal or two.
// The model of a configuration's outcome is its lower bound times factors of its alternatives, and of pairs of them:
//   log(outcome / bound) = mean + Σ over dimensions, and over pairs of dimensions, of the effect of its alternatives
// What formulas know is in the bound; what they do not, the effects learn from all trials so far, by least squares
// (backfitting, each effect drawn towards 0 where it was seen seldom). Every alternative is tried once; then, until the
// budget is spent, what the model puts on the front, or next to it, and what it takes for the best by each goal.

#include <cairn/perf/tune.hpp>

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
        constexpr double prior = 0.01, prior_of_pair = 1;  // of so many trials, whose effect is 0
        constexpr int sweeps = 60;
        const auto& dimensions = space.dimensions;
        for (std::size_t d = 0; d < dimensions.size(); ++d)
            for (std::size_t e = 0; e <= d; ++e) {
                const std::size_t n = dimensions[d].alternatives.size(), m = dimensions[e].alternatives.size();
                if (n > 1 && m > 1)
                    terms_.push_back({d, e, m, d == e ? prior : prior_of_pair, std::vector<double>(n * m, 0.0)});
            }
        for (const auto& [choice, value] : known) mean_ += value / static_cast<double>(known.size());
        std::vector<double> left;  // of each known value, what the effects do not explain
        for (const auto& [choice, value] : known) left.push_back(value - mean_);
        for (int i = 0; i < sweeps; ++i)
            for (term& t : terms_) {
                std::vector<double> sum(t.effects.size(), 0.0), count(t.effects.size(), t.prior);
                for (std::size_t k = 0; k < known.size(); ++k) {
                    const std::size_t at = t.at(known[k].first);
                    left[k] += t.effects[at];
                    sum[at] += left[k], count[at] += 1;
                }
                for (std::size_t a = 0; a < sum.size(); ++a) t.effects[a] = sum[a] / count[a];
                for (std::size_t k = 0; k < known.size(); ++k) left[k] -= t.effects[t.at(known[k].first)];
            }
    }

    double operator()(const tuning_choice& c) const {
        double all = mean_;
        for (const term& t : terms_) all += t.effects[t.at(c)];
        return all;
    }

private:
    /// Effects of the alternatives of two dimensions together, or of one with itself.
    struct term {
        std::size_t first, second, alternatives;  // of the second
        double prior;
        std::vector<double> effects;

        std::size_t at(const tuning_choice& c) const { return c[first] * alternatives + c[second]; }
    };
    std::vector<term> terms_;
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
        double least = std::numeric_limits<double>::infinity();  // of the outcomes: no bound counts as it
        for (const tuning_trial& t : log.trials())
            if (t.outcome.possible()) least = std::min(least, t.outcome.*goal);
        const auto bound = [&](const tuning_outcome& b) { return std::max({b.*goal, least, 1e-30}); };
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

/// See the top of the file.
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
    const auto untried = [&](std::vector<tuning_trial> trials) {
        std::erase_if(trials, [&](const tuning_trial& t) { return log.of(t.choice) != nullptr; });
        return trials;
    };
    while (log.left() > 0) {
        const std::vector<tuning_trial> expected = detail::expected_outcomes(log, all, bounds, goals),
                                        rest = untried(expected);
        if (rest.empty()) return;
        std::vector<tuning_trial> front = untried(front_of(expected, goals));
        if (front.empty()) front = front_of(rest, goals);
        std::vector<tuning_choice> next{front[front.size() / 2].choice};
        for (const tuning_goal goal : goals) next.push_back(front_of(rest, {goal}).front().choice);
        log.try_all(next, {});
    }
}

}  // namespace cairn
