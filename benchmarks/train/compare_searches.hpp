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

/// The corner of a hypervolume: 1.1 times the plain configuration or, where that is worse, the worst of the front.
inline std::array<double, 2> corner_of(const std::vector<cairn::tuning_trial>& front,
                                       const cairn::tuning_outcome& plain, const cairn::tuning_goals& goals) {
    std::array<double, 2> corner{};
    for (std::size_t g = 0; g < goals.size(); ++g) {
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
    struct aim {
        const char* name;
        cairn::tuning_goals goals;
    };
    const auto* const plain = all.of(all.space().plain());
    for (const aim& a : {aim{"time", {&tuning_outcome::seconds}}, aim{"energy", {&tuning_outcome::joules}},
                         aim{"time and energy", {&tuning_outcome::seconds, &tuning_outcome::joules}},
                         aim{"communication and energy", {&tuning_outcome::bytes, &tuning_outcome::joules}}}) {
        const auto whole = cairn::front_of(all.trials(), a.goals);
        if (whole.empty() || whole.front().outcome.*a.goals.back() <= 0) continue;
        const auto corner = corner_of(whole, plain ? plain->outcome : whole.front().outcome, a.goals);
        const auto share = [&](const cairn::tuning_log& log) {  // of the best value, or of the whole volume
            const auto front = cairn::front_of(log.trials(), a.goals);
            if (front.empty()) return 0.0;
            if (a.goals.size() == 1) return whole.front().outcome.*a.goals[0] / (front.front().outcome.*a.goals[0]);
            return cairn::hypervolume(front, a.goals, corner) / cairn::hypervolume(whole, a.goals, corner);
        };
        const auto one = [&](const char* search, auto&& run) {
            cairn::tuning_log log = fresh(budget);
            run(log);
            tell(cairn::concat(search, ", ", a.name, " (", whole.size(), " on the front)"), log.trials().size(),
                 log.pruned(), share(log));
        };
        one("greedy", [&](auto& log) {
            for (const cairn::tuning_goal goal : a.goals) cairn::greedy_search(log, goal);
        });
        one("local search", [&](auto& log) { cairn::local_search(log, a.goals); });
        one("model", [&](auto& log) { cairn::model_search(log, a.goals); });
    }
    return table;
}

}  // namespace tuning
