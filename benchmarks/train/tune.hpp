#pragma once
// train --tune: which settings a run is best started with, by trying them. How they are tried: tune_settings.hpp.

#include "compare_searches.hpp"

#include <cairn/perf/tune/exhaustive.hpp>
#include <cairn/perf/tune/greedy.hpp>
#include <cairn/perf/tune/local_search.hpp>
#include <cairn/perf/tune/model_search.hpp>
#include <cairn/train/tuning_bound.hpp>
#include <cairn/train/tuning_records.hpp>
#include <cairn/train/tuning_space.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

/// What is asked of the tuner.
struct tuning_request {
    std::string goal;                       // time, energy or pareto; empty: nothing is asked
    std::string search;                     // greedy, local, model, exhaustive or compare; empty: model
    std::size_t trials = 100;               // at most, of each front
    std::vector<std::string> only = {};     // dimensions to vary; empty: all
    std::vector<std::string> records = {};  // files or folders that show what compression keeps
    std::vector<std::string> allowed = {};  // compressions without a record, settings joined by spaces
    std::vector<std::string> sets = {};     // of the command line
    std::filesystem::path report = {};      // all that was tried goes into this file, as JSON
};

namespace tuning {

constexpr double margin = 0.03;  // outcomes are known to so much, simulated or measured

/// A configuration of the settings, as a run has them.
inline cairn::configuration applied(cairn::configuration settings, const cairn::tuning_settings& chosen) {
    for (const std::string& s : chosen)
        if (!s.starts_with(cairn::run_space::p_state)) settings.set(s);
    return settings;
}
inline std::string p_state_of(const cairn::tuning_settings& chosen) {
    const std::string key = cairn::run_space::p_state;
    for (const std::string& s : chosen)
        if (s.starts_with(key)) return s.substr(key.size());
    return {};
}

/// As one would type them.
inline std::string as_options(const cairn::tuning_settings& chosen) {
    std::string text;
    for (const std::string& s : chosen)
        text += s.starts_with(cairn::run_space::p_state)
                    ? " --p-state " + s.substr(std::string(cairn::run_space::p_state).size())
                    : " --set '" + s + "'";
    return text.empty() ? " (as it is)" : text;
}

/// Of a run's result, simulated or measured.
inline cairn::tuning_outcome outcome_of(const std::string& told) {
    cairn::tuning_outcome out;
    if (told.starts_with('!')) {
        out.impossible = told.substr(1);
        return out;
    }
    const nlohmann::json result = nlohmann::json::parse(told);
    out.seconds = result.at("batch").get<double>() / result.at("samples_per_s").get<double>();
    if (result.at("joules_a_step").is_number()) out.joules = result["joules_a_step"].get<double>();
    out.memory = result.at("pool_peak_bytes").get<double>();
    if (result.contains("simulation")) {
        const nlohmann::json& s = result["simulation"];
        out.memory = s.at("most_peak_bytes").get<double>();
        out.bytes = s.at("a_step").at("most_bytes_sent").get<double>();
        const double computed = s.at("a_step").at("most_computed_s").get<double>() / out.seconds;
        out.limit = cairn::concat("computing ", std::lround(100 * computed), " % of it");
    }
    return out;
}

inline nlohmann::json to_json(const cairn::tuning_outcome& o) {
    if (!o.possible()) return {{"impossible", o.impossible}};
    return {{"seconds", o.seconds}, {"joules", o.joules}, {"bytes", o.bytes}, {"memory", o.memory}, {"limit", o.limit}};
}

inline nlohmann::json to_json(const cairn::tuning_trial& t) {
    return {{"choice", t.choice}, {"settings", t.settings}, {"outcome", to_json(t.outcome)}};
}
/// Of a trial that can run.
inline cairn::tuning_trial trial_of(const nlohmann::json& j) {
    const nlohmann::json& o = j.at("outcome");
    return {j.at("choice").get<cairn::tuning_choice>(),
            j.at("settings").get<cairn::tuning_settings>(),
            {.seconds = o.at("seconds").get<double>(),
             .joules = o.at("joules").get<double>(),
             .bytes = o.at("bytes").get<double>(),
             .memory = o.at("memory").get<double>(),
             .limit = o.at("limit").get<std::string>()}};
}

inline void print_front(const std::vector<cairn::tuning_trial>& front, const char* what) {
    std::printf("%s\n  %12s %12s %12s %12s  %-30s %s\n", what, "ms a step", "joules", "MB sent", "MiB held",
                "most computing rank", "settings");
    for (const cairn::tuning_trial& t : front)
        std::printf("  %12.4g %12.4g %12.4g %12.4g  %-30s%s\n", 1e3 * t.outcome.seconds, t.outcome.joules,
                    1e-6 * t.outcome.bytes, t.outcome.memory / (1 << 20), t.outcome.limit.c_str(),
                    as_options(t.settings).c_str());
}

/// What the space depends on, and the work of a step, by a step of one rank on memory that is never touched.
inline std::pair<cairn::tuned_run, cairn::run_work> facts_of(const nlohmann::json& needs, int ranks,
                                                             const cairn::machine_description* machine) {
    cairn::tuned_run run{.ranks = ranks,
                         .batch = needs.at("batch").get<cairn::index_t>(),
                         .parameters = needs.at("parameters").get<double>(),
                         .batch_norm = needs.at("running_statistics").get<int>() > 0,
                         .p_states = machine && machine->power ? machine->power->states.size() : 1,
                         .own_processors = machine && machine->ranks_per_host * machine->hosts_per_processor == 1};
    cairn::run_work work;
    for (const auto& [kind, sum] : needs.at("kinds").items())
        work.kinds[kind] = {sum.at("calls").get<double>(), sum.at("flops").get<double>(),
                            sum.at("bytes").get<double>()};
    return {std::move(run), std::move(work)};
}

/// Compressions that records or the user allow.
inline std::vector<std::string> compressions_of(const tuning_request& asked, const std::string& workload) {
    std::vector<std::string> all = asked.allowed;
    for (const std::string& path : asked.records)
        for (const std::string& kept : cairn::kept_compressions(std::filesystem::path(path), workload, asked.sets))
            if (std::ranges::find(all, kept) == all.end()) all.push_back(kept);
    return all;
}

}  // namespace tuning

/// The settings to start with, and how they were found.
struct tuned {
    cairn::tuning_trial choice;                  // with what is expected of it
    std::vector<cairn::tuning_trial> finalists;  // worth measuring before one is chosen
    nlohmann::json report;                       // summary
    nlohmann::json trials, dimensions;           // all that was tried, and of what
};

/// See the top of the file. `run`: outcomes of configurations; `needs`: needs_of_steps (train/plan.hpp) of one rank;
/// `machine`: null where configurations are measured; `prints`: what was found.
inline tuned tune(const cairn::configuration& settings, const tuning_request& asked, int ranks,
                  const nlohmann::json& needs, const cairn::machine_description* machine,
                  const cairn::tuning_log::runner& run, bool prints) {
    using cairn::tuning_outcome;
    auto known = tuning::facts_of(needs, ranks, machine);
    cairn::tuned_run& facts = known.first;
    facts.compressions = tuning::compressions_of(asked, cairn::configuration(settings).get("name", "run"));
    cairn::run_space choices(facts, settings);
    if (!asked.only.empty()) choices.vary_only(asked.only);
    const cairn::tuning_space space = choices.space();
    cairn::require(asked.goal == "time" || (machine && machine->power), "--tune ", asked.goal,
                   " needs watts: --simulate MACHINE.toml with [hosts.watts]");
    const auto bound = [&](const cairn::tuning_choice& c) {
        return machine ? cairn::least_outcome(choices.layout(c), facts, known.second, *machine) : tuning_outcome{};
    };
    const std::string search = asked.search.empty() ? "model" : asked.search;
    const bool tries_all = search == "exhaustive" || search == "compare";
    cairn::tuning_log log(space, run, bound, tries_all ? std::size_t(-1) : asked.trials);
    const cairn::tuning_goals by_time{&tuning_outcome::seconds, &tuning_outcome::joules},
        by_bytes{&tuning_outcome::bytes, &tuning_outcome::joules};
    const cairn::tuning_goal goal = asked.goal == "energy" ? &tuning_outcome::joules : &tuning_outcome::seconds;
    const auto look = [&](const cairn::tuning_goals& goals) {
        if (search == "greedy") return (void)cairn::greedy_search(log, goals.front());
        if (search == "local") return cairn::local_search(log, goals);
        return cairn::model_search(log, goals);
    };
    if (tries_all) {
        cairn::exhaustive_search(log);
    } else if (asked.goal == "pareto") {
        look(by_time);
        log.add_budget(asked.trials);
        look(by_bytes);
    } else {
        look({goal});
    }
    const cairn::tuning_trial* const chosen = cairn::simplest_of_best(log.trials(), goal, tuning::margin);
    if (!chosen)
        cairn::fail("--tune: none of ", log.trials().size(), " configurations can run",
                    log.trials().empty() ? "" : ": " + log.trials().front().outcome.impossible);
    tuned result{*chosen, cairn::finalists(log.trials(), goal, 6, 0.25), {}, {}, {}};
    for (const cairn::tuning_trial& t : log.trials()) {
        result.trials.push_back(tuning::to_json(t));
        if (machine) result.trials.back()["bound"] = tuning::to_json(bound(t.choice));
    }
    for (const auto& d : space.dimensions)
        result.dimensions.push_back({{"name", d.name}, {"alternatives", d.alternatives}});
    result.report = {{"goal", asked.goal},
                     {"search", search},
                     {"ranks", ranks},
                     {"machine", machine ? nlohmann::json(machine->name) : nlohmann::json()},
                     {"tried", log.trials().size()},
                     {"pruned", log.pruned()},
                     {"chosen", result.choice.settings},
                     {"expected", tuning::to_json(result.choice.outcome)}};
    if (search == "compare") result.report["searches"] = tuning::compare_searches(log, bound);
    if (!prints) return result;
    std::printf("tuned %s on %d ranks of %s: %zu configurations %s, %zu left out by their bounds\n", asked.goal.c_str(),
                ranks, machine ? machine->name.c_str() : "this machine", log.trials().size(),
                machine ? "simulated" : "measured", log.pruned());
    if (const auto* const plain = log.of(space.plain())) tuning::print_front({*plain}, "plain:");
    if (asked.goal == "pareto") {
        tuning::print_front(cairn::front_of(log.trials(), by_time), "front of time and energy:");
        tuning::print_front(cairn::front_of(log.trials(), by_bytes), "front of communication and energy:");
    } else {
        tuning::print_front({cairn::front_of(log.trials(), {goal}).front()}, "best:");
        tuning::print_front(
            {result.choice},
            cairn::concat("chosen, the simplest within ", std::lround(100 * tuning::margin), " % of it:").c_str());
    }
    return result;
}
