#pragma once
// train --tune … --search compare: the searches against all configurations of the space. After those were tried, each
// search runs again on their outcomes, and may look at one in ten.

#include <cairn/perf/tune/exhaustive.hpp>
#include <cairn/perf/tune/greedy.hpp>
#include <cairn/perf/tune/local_search.hpp>
#include <cairn/perf/tune/model_search.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

namespace tuning {

/// The corner of a hypervolume: 1.1 times the plain configuration, or where that is worse, the worst of the front.
inline std::array<double, 2> corner_of(const std::vector<cairn::tuning_trial>& front,
                                       const cairn::tuning_outcome& plain, const cairn::tuning_goals& goals) {
    std::array<double, 2> corner{};
    for (std::size_t g = 0; g < 2; ++g) {
        corner[g] = plain.possible() ? plain.*goals[g] : 0;
        for (const cairn::tuning_trial& t : front) corner[g] = std::max(corner[g], t.outcome.*goals[g]);
        corner[g] *= 1.1;
    }
    return corner;
}

/// `all`: a log of the whole space. Prints a table, and returns it.
inline nlohmann::json compare_searches(const cairn::tuning_log& all, const cairn::tuning_log::bounder& bound) {
    using cairn::tuning_outcome;
    std::map<cairn::tuning_settings, const tuning_outcome*> known;
    for (const cairn::tuning_trial& t : all.trials()) known[t.settings] = &t.outcome;
    const auto look_up = [&](const std::vector<cairn::tuning_settings>& wanted) {
        std::vector<tuning_outcome> outcomes;
        for (const auto& settings : wanted) outcomes.push_back(*known.at(settings));
        return outcomes;
    };
    const std::size_t budget = std::max<std::size_t>(1, all.trials().size() / 10);
    const auto fresh = [&](std::size_t trials) { return cairn::tuning_log(all.space(), look_up, bound, trials); };
    nlohmann::json table = nlohmann::json::array();
    std::printf("%zu configurations; searches may try %zu\n  %-44s %8s %10s\n", all.trials().size(), budget, "search",
                "trials", "of best");
    const auto tell = [&](const std::string& name, std::size_t trials, std::size_t pruned, double share) {
        std::printf("  %-44s %8zu %9.2f %%\n", name.c_str(), trials, 100 * share);
        table.push_back({{"search", name}, {"trials", trials}, {"pruned", pruned}, {"share_of_best", share}});
    };
    const auto best_of = [](const cairn::tuning_log& log, cairn::tuning_goal goal) {
        const auto front = cairn::front_of(log.trials(), {goal});
        return front.empty() ? 0 : front.front().outcome.*goal;
    };
    for (const auto& [name, goal] :
         {std::pair{"time", &tuning_outcome::seconds}, {"energy", &tuning_outcome::joules}}) {
        if (best_of(all, goal) <= 0) continue;
        const auto one = [&](const char* search, auto&& run) {
            cairn::tuning_log log = fresh(budget);
            run(log);
            tell(cairn::concat(search, ", ", name), log.trials().size(), log.pruned(),
                 best_of(all, goal) / best_of(log, goal));
        };
        one("greedy", [goal = goal](auto& log) { cairn::greedy_search(log, goal); });
        one("local search", [goal = goal](auto& log) { cairn::local_search(log, {goal}); });
        one("model", [goal = goal](auto& log) { cairn::model_search(log, {goal}); });
    }
    const auto* const plain = all.of(all.space().plain());
    for (const auto& [name, goals] :
         {std::pair{"time and energy", cairn::tuning_goals{&tuning_outcome::seconds, &tuning_outcome::joules}},
          {"communication and energy", cairn::tuning_goals{&tuning_outcome::bytes, &tuning_outcome::joules}}}) {
        const auto front = cairn::front_of(all.trials(), goals);
        const auto corner = corner_of(front, plain ? plain->outcome : tuning_outcome{.impossible = "not tried"}, goals);
        const double whole = cairn::hypervolume(front, goals, corner);
        if (whole <= 0) continue;
        const auto one = [&](const char* search, auto&& run) {
            cairn::tuning_log log = fresh(budget);
            run(log);
            tell(cairn::concat(search, ", ", name, " (", front.size(), " on the front)"), log.trials().size(),
                 log.pruned(), cairn::hypervolume(cairn::front_of(log.trials(), goals), goals, corner) / whole);
        };
        one("greedy", [&](auto& log) {
            for (const cairn::tuning_goal goal : goals) cairn::greedy_search(log, goal);
        });
        one("local search", [&](auto& log) { cairn::local_search(log, goals); });
        one("model", [&](auto& log) { cairn::model_search(log, goals); });
    }
    return table;
}

}  // namespace tuning
