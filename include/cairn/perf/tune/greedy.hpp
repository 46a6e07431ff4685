#pragma once
// Greedy by marginal gain, for one goal: every single change of the plain configuration is tried, then the changes are
// made one upon the other, those that gained most alone first, each kept if it still gains (lazy evaluation of marginal
// gains, Minoux 1978). Trials: the alternatives of all dimensions, and as many again as dimensions, at most.

#include <cairn/perf/tune.hpp>

#include <algorithm>
#include <utility>
#include <vector>

namespace cairn {

/// The best choice found.
inline tuning_choice greedy_search(tuning_log& log, tuning_goal goal) {
    const tuning_space& space = log.space();
    tuning_choice best = space.plain();
    log.try_all({best}, {goal});
    for (bool improved = true; improved;) {
        improved = false;
        const std::vector<tuning_choice> changes = space.neighbours(best);
        log.try_all(changes, {goal});
        std::vector<std::pair<double, const tuning_choice*>> gains;
        for (const tuning_choice& c : changes)
            if (const double v = log.value(c, goal); v < log.value(best, goal)) gains.emplace_back(v, &c);
        std::ranges::stable_sort(gains, {}, [](const auto& g) { return g.first; });
        const tuning_choice from = best;
        for (const auto& [alone, change] : gains) {
            tuning_choice next = best;
            for (std::size_t d = 0; d < next.size(); ++d)
                if ((*change)[d] != from[d] && best[d] == from[d]) next[d] = (*change)[d];
            log.try_all({next}, {goal});
            if (log.value(next, goal) < log.value(best, goal)) best = std::move(next), improved = true;
        }
    }
    return best;
}

}  // namespace cairn
