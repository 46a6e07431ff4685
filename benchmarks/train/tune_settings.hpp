#pragma once
// The settings that train --tune starts with. Configurations are tried on a described machine (simulate.hpp), each in a
// process of its own, as many at once as there are threads; or on the ranks that there are, by a few steps each. Where
// they were simulated and ranks are there to start with, the few that are expected to be best, and the plain one, are
// measured before one is chosen: a simulation leaves out what no setting is worth trying for, steps decide the rest.

#include "session.hpp"
#include "tune.hpp"

#include <cairn/comm/collectives/text.hpp>
#include <cairn/core/child_process.hpp>
#include <cairn/train/machine_file.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

namespace tuning {

/// While it lives, nothing is printed to standard output or error.
class shut_stream {
public:
    explicit shut_stream(std::FILE* stream) : stream_(stream), kept_(dup(fileno(stream))) {
        std::fflush(stream_);
        const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
        cairn::require(kept_ >= 0 && nowhere >= 0 && dup2(nowhere, fileno(stream_)) >= 0, "/dev/null cannot be opened");
        close(nowhere);
    }
    shut_stream(const shut_stream&) = delete;
    shut_stream& operator=(const shut_stream&) = delete;
    ~shut_stream() {
        std::cout.flush();
        std::fflush(stream_);
        dup2(kept_, fileno(stream_));
        close(kept_);
    }

private:
    std::FILE* stream_;
    int kept_;
};

/// f() with both shut: in a child process, whose result is what it returns.
template <class F>
std::string in_silence(F&& f) {
    const shut_stream output(stdout), errors(stderr);
    return f();
}

/// f(i) of i < count in child processes, `jobs` at a time; what each returned, or why it failed behind a '!'. A child
/// that is killed says nothing of its configuration: throws, naming the signal and name(i).
inline std::vector<std::string> in_children(std::size_t count, int jobs,
                                            const std::function<std::string(std::size_t)>& name,
                                            const std::function<std::string(std::size_t)>& f) {
    std::vector<std::string> told(count);
    std::deque<std::pair<std::size_t, cairn::child_process>> running;
    const auto finish_one = [&] {
        auto& [i, child] = running.front();
        try {
            told[i] = child.text();
        } catch (cairn::child_killed& e) {
            e.add_context("--tune:" + name(i));
            throw;
        } catch (const cairn::error& e) {
            told[i] = std::string("!") + e.what();
        }
        running.pop_front();
    };
    for (std::size_t i = 0; i < count; ++i) {
        if (static_cast<int>(running.size()) >= jobs) finish_one();
        running.emplace_back(i, cairn::child_process([&] { return in_silence([&] { return f(i); }); }));
    }
    while (!running.empty()) finish_one();
    return told;
}

/// The settings of one rank that has all of the model, whatever its memory.
inline cairn::configuration of_one_rank(cairn::configuration settings) {
    for (const char* one : {"parallel.data=1", "parallel.pipeline=1", "parallel.tensor=1", "train.memory_limit_mb=0"})
        settings.set(one);
    if (settings.has("parallel.spatial")) settings.set("parallel.spatial=[]");
    if (settings.has("parallel.sequence_parallel")) settings.set("parallel.sequence_parallel=false");
    return settings;
}

/// By simulations; in this process nothing is built.
inline tuned by_simulation(const cairn::configuration& settings, const cairn::session_options& options,
                           const tuning_request& asked, int ranks, const std::string& machine_file,
                           const nlohmann::json& needs) {
    const cairn::machine_description machine = cairn::read_machine(machine_file);
    machine.check_ranks(ranks);
    const auto run = [&](const std::vector<cairn::tuning_settings>& all) {
        const auto name = [&](std::size_t i) { return as_options(all[i]); };
        const auto told = in_children(all.size(), cairn::threads(), name, [&](std::size_t i) {
            const simulated_run one{.ranks = ranks, .p_state = p_state_of(all[i])};
            return simulate_session(applied(settings, all[i]), options, machine, one, true, {}).dump();
        });
        std::vector<cairn::tuning_outcome> outcomes;
        for (const std::string& result : told) outcomes.push_back(outcome_of(result));
        return outcomes;
    };
    return tune(settings, asked, ranks, needs, &machine, run, true);
}

/// Outcomes of configurations, by a few steps of each on the ranks that there are.
inline std::vector<cairn::tuning_outcome> measured(const cairn::configuration& settings, cairn::session_options options,
                                                   const std::vector<cairn::tuning_settings>& all,
                                                   cairn::any_communicator& world, int local_rank) {
    options.max_steps = options.max_steps < 0 ? 8 : options.max_steps;
    std::vector<cairn::tuning_outcome> outcomes;
    for (const cairn::tuning_settings& chosen : all) {
        std::string told;
        try {
            const shut_stream output(stdout);
            told =
                run_session(applied(settings, chosen), options, world.split(0, world.rank()), local_rank, false, false)
                    .dump();
        } catch (const cairn::error& e) {
            told = std::string("!") + e.what();
        }
        outcomes.push_back(outcome_of(cairn::all_gather_text(world, told).front()));
    }
    return outcomes;
}

/// Chooses the fastest of the finalists by two rounds of measuring, of each the lesser time. Frequencies cannot be set
/// here: those are left out.
inline void measure_finalists(tuned& found, const cairn::configuration& settings, const cairn::session_options& options,
                              cairn::any_communicator& world, int local_rank) {
    std::erase_if(found.finalists, [](const cairn::tuning_trial& t) { return !p_state_of(t.settings).empty(); });
    std::vector<cairn::tuning_settings> all;
    for (const cairn::tuning_trial& t : found.finalists) all.push_back(t.settings);
    std::vector<cairn::tuning_trial> trials = found.finalists;
    constexpr int rounds = 2;
    for (int round = 0; round < rounds; ++round) {
        const auto outcomes = measured(settings, options, all, world, local_rank);
        for (std::size_t i = 0; i < all.size(); ++i) {
            cairn::tuning_outcome& best = trials[i].outcome;
            if (round == 0 || !outcomes[i].possible() || (best.possible() && outcomes[i].seconds < best.seconds))
                best = outcomes[i];
        }
    }
    if (world.rank() == 0) std::printf("measured on these ranks, %d rounds:\n", rounds);
    found.report["measured"] = nlohmann::json::array();
    for (std::size_t i = 0; i < all.size(); ++i) {
        const double expected = found.finalists[i].outcome.seconds;
        const cairn::tuning_outcome& out = trials[i].outcome;
        found.report["measured"].push_back({{"settings", all[i]}, {"expected_s", expected}, {"outcome", to_json(out)}});
        if (world.rank() != 0) continue;
        if (out.possible())
            std::printf("  %10.4g ms a step, expected %10.4g ms %s\n", 1e3 * out.seconds, 1e3 * expected,
                        as_options(all[i]).c_str());
        else
            std::printf("  cannot run:%s: %s\n", as_options(all[i]).c_str(), out.impossible.c_str());
    }
    const auto* const best = cairn::simplest_of_best(trials, &cairn::tuning_outcome::seconds, margin);
    if (!best)
        cairn::fail("--tune: none of the ", all.size(), " configurations that were simulated to be best can run");
    found.choice = found.finalists[static_cast<std::size_t>(best - trials.data())];
    found.report["chosen"] = found.choice.settings;
    found.report["expected"] = to_json(found.choice.outcome);
}

inline void write_report(const tuned& found, const std::filesystem::path& path) {
    nlohmann::json whole = found.report;
    whole["dimensions"] = found.dimensions;
    whole["trials"] = found.trials;
    std::ofstream file(path);
    cairn::require(bool{file << whole.dump(1) << std::endl}, "--report ", path.string(), ": cannot be written");
}

/// Prints what was predicted beside what a run of the chosen settings measured, and adds it to the result.
inline void print_beside(const tuned& found, nlohmann::json& result) {
    const double predicted = found.choice.outcome.seconds,
                 measured = result.at("batch").get<double>() / result.at("samples_per_s").get<double>();
    std::printf("chosen:%s\n", as_options(found.choice.settings).c_str());
    std::printf("a step: predicted %.4g s, measured %.4g s (%+.1f %%)\n", predicted, measured,
                100 * (predicted / measured - 1));
    result["tuning"] = {{"report", found.report}, {"predicted_s", predicted}, {"measured_s", measured}};
}

}  // namespace tuning

/// The settings to start with, the same on all ranks; rank 0 prints how they were found. `machine_file`: empty where
/// configurations are measured. `ranks`: of a simulation that no run follows; 0: a run of `world` follows.
inline tuned tune_settings(const cairn::configuration& settings, cairn::session_options options,
                           const tuning_request& asked, int ranks, const std::string& machine_file,
                           cairn::any_communicator& world, int local_rank) {
    options.generated = true;
    std::string needs, texts;
    const bool is_root = world.rank() == 0;
    if (is_root)
        needs = cairn::in_child_process([&] {
            return tuning::in_silence(
                [&] { return needs_of_ranks(tuning::of_one_rank(settings), options, 1)[0].dump(); });
        });
    const nlohmann::json work = nlohmann::json::parse(cairn::all_gather_text(world, needs).front());
    tuned found;
    if (machine_file.empty()) {
        const auto run = [&](const auto& all) { return tuning::measured(settings, options, all, world, local_rank); };
        found = tune(settings, asked, world.size(), work, nullptr, run, is_root);
    } else {
        if (is_root) {
            found =
                tuning::by_simulation(settings, options, asked, ranks > 0 ? ranks : world.size(), machine_file, work);
            nlohmann::json all = {{"choice", tuning::to_json(found.choice)}, {"finalists", nlohmann::json::array()}};
            for (const cairn::tuning_trial& t : found.finalists) all["finalists"].push_back(tuning::to_json(t));
            texts = all.dump();
        }
        const nlohmann::json all = nlohmann::json::parse(cairn::all_gather_text(world, texts).front());
        found.choice = tuning::trial_of(all.at("choice"));
        found.finalists.clear();
        for (const nlohmann::json& t : all.at("finalists")) found.finalists.push_back(tuning::trial_of(t));
        if (ranks == 0 && asked.goal != "energy")
            tuning::measure_finalists(found, settings, options, world, local_rank);
    }
    if (is_root && !asked.report.empty()) tuning::write_report(found, asked.report);
    return found;
}
