#pragma once
// Pareto local search (Paquete, Chiarandini and Stützle 2004): a front of two goals, grown by trying the neighbours of
// its members, the one with the largest gap to its neighbours on the front first, until no member has an untried
// neighbour that its bound allows, or the budget is spent. Begins with the plain configuration and the greedy best of
// each goal.

#include <cairn/perf/tune.hpp>
#include <cairn/perf/tune/greedy.hpp>

#include <cmath>
#include <limits>
#include <set>
#include <vector>

namespace cairn {

namespace detail {

/// How far apart the neighbours of the front's i-th point are, as a share of it; at its ends, infinity.
inline double gap_around(const std::vector<tuning_trial>& front, std::size_t i, const tuning_goals& goals) {
    if (i == 0 || i + 1 == front.size()) return std::numeric_limits<double>::infinity();
    double gap = 0;
    for (const tuning_goal g : goals) gap += std::abs(std::log(front[i + 1].outcome.*g / (front[i - 1].outcome.*g)));
    return gap;
}

}  // namespace detail

inline void local_search(tuning_log& log, const tuning_goals& goals) {
    for (const tuning_goal goal : goals) greedy_search(log, goal);
    std::set<tuning_choice> explored;
    while (log.left() > 0) {
        const std::vector<tuning_trial> front = front_of(log.trials(), goals);
        std::size_t next = front.size();
        for (std::size_t i = 0; i < front.size(); ++i)
            if (!explored.contains(front[i].choice) &&
                (next == front.size() || detail::gap_around(front, i, goals) > detail::gap_around(front, next, goals)))
                next = i;
        if (next == front.size()) return;
        explored.insert(front[next].choice);
        log.try_all(log.space().neighbours(front[next].choice), goals);
    }
}

}  // namespace cairn
