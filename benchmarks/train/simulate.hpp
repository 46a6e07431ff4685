#pragma once
// train --simulate MACHINE.toml: the run's ranks as actors of one process on a described machine.

#include <cairn/comm/any.hpp>
#include <cairn/comm/simgrid.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/perf/data_movement.hpp>
#include <cairn/perf/machine_description.hpp>
#include <cairn/train/process.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <vector>

/// What is asked about a machine.
struct simulated_run {
    int ranks = 1;
    std::string p_state = {};  // that all kernels run in, or "slack", as far as others wait; empty: the file's
    std::int64_t samples = 0;  // of the training set, for the totals of the whole training; 0: not asked
    std::int64_t epochs = 1;
};

/// What a simulated rank is told before it begins.
struct begun_run {
    std::function<void(std::int64_t)> begin_steps;  // to be called before the first of so many steps
    std::string machine;                            // "cluster (described, not calibrated)"
    std::vector<int> first_of_hosts;                // the first rank of each, of four at most
    std::optional<cairn::host_power> slack;         // where the stages of a pipeline slow down
};

/// By cause and axis, what the rank that sent most sent in the steps. Prints the larger causes, and returns all.
inline nlohmann::json tell_causes(const cairn::traffic& sent, const cairn::traffic& before, double steps) {
    std::vector<std::pair<double, std::string>> order;
    nlohmann::json causes = nlohmann::json::object();
    for (const auto& [cause, all] : sent) {
        const auto at = before.find(cause);
        const double bytes = static_cast<double>(all.bytes - (at == before.end() ? 0 : at->second.bytes)) / steps,
                     messages =
                         static_cast<double>(all.messages - (at == before.end() ? 0 : at->second.messages)) / steps;
        if (messages <= 0 || cause == "traces") continue;
        causes[cause] = {{"axis", cairn::axis_of(cause)}, {"bytes", bytes}, {"messages", messages}};
        order.emplace_back(bytes, cause);
    }
    std::sort(order.rbegin(), order.rend());
    std::printf("a step of the rank that sends most:");
    for (std::size_t i = 0; i < std::min<std::size_t>(order.size(), 6); ++i)
        std::printf("%s %s %.4g MB", i ? "," : "", order[i].second.c_str(), 1e-6 * order[i].first);
    std::printf("\n");
    return causes;
}

/// Steps, seconds, joules and bytes of a whole training, whose steps are all like the simulated ones. `sent`: bytes of
/// a rank in a step. Prints them, and adds them to the result.
inline void tell_whole_training(const simulated_run& asked, double sent, nlohmann::json& result) {
    const double batch = result.at("batch").get<double>(),
                 peak = result.at("simulation").at("most_peak_bytes").get<double>();
    const double steps = static_cast<double>(asked.epochs) * std::ceil(static_cast<double>(asked.samples) / batch);
    const double seconds = steps * batch / result.at("samples_per_s").get<double>();
    nlohmann::json joules = result.at("joules_a_step");
    if (!joules.is_null()) joules = steps * joules.get<double>();
    std::printf("the whole training, %lld epochs of %lld samples: %.0f steps, %.4g h, ",
                static_cast<long long>(asked.epochs), static_cast<long long>(asked.samples), steps, seconds / 3600);
    if (!joules.is_null())
        std::printf("%.4g kWh (%.4g MJ), ", joules.get<double>() / 3.6e6, 1e-6 * joules.get<double>());
    std::printf("%.4g GB sent and %.4g GiB held by a rank\n", 1e-9 * steps * sent, peak / (1 << 30));
    result["whole_training"] = {
        {"steps", steps}, {"seconds", seconds}, {"joules", joules}, {"sent_bytes", steps * sent}, {"peak_bytes", peak}};
}

/// run(world, begin_steps) on each simulated rank; returns rank 0's result, with what the ranks did ("simulation").
/// Prints that, and how long the simulation took here: until the last rank called begin_steps, and from there. Throws
/// where this program was built without SimGrid.
inline nlohmann::json simulate(cairn::machine_description machine, const simulated_run& asked,
                               const std::function<nlohmann::json(cairn::any_communicator, const begun_run&)>& run) {
    const int ranks = asked.ranks;
    const bool on_slack = asked.p_state == "slack";
    cairn::require(asked.p_state.empty() || machine.power, "--p-state ", asked.p_state, ": machine ", machine.name,
                   " has no [hosts.watts]");
    if (!asked.p_state.empty()) machine.power->state = on_slack ? 0 : std::stoul(asked.p_state);
    const std::optional<cairn::host_power> slack = on_slack ? machine.power : std::nullopt;
#if CAIRN_HAS_SIMGRID
    cairn::set_threads(machine.threads);  // workspaces depend on it; no kernel runs
    nlohmann::json result;
    using clock = std::chrono::steady_clock;  // of this process: now() is the simulation's on a simulated rank
    const auto since = [](clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); };
    const clock::time_point begin = clock::now();
    double start = 0, steps = 1;
    const std::string on = machine.name + (machine.calibrated ? "" : " (described, not calibrated)");
    std::vector<int> first_of_hosts;
    for (int r = 0; r < ranks && first_of_hosts.size() < 4; r += machine.ranks_per_host) first_of_hosts.push_back(r);
    std::vector<cairn::simulated_rank> before(static_cast<std::size_t>(ranks));  // the steps
    const cairn::simulation all = cairn::run_simulated(machine, ranks, [&](cairn::simgrid_communicator& world) {
        const int rank = world.rank();
        const auto begin_steps = [&, rank](std::int64_t count) {
            start = since(begin);
            steps = static_cast<double>(count);
            before[static_cast<std::size_t>(rank)] = cairn::detail::simulated_machine::here().numbers();
        };
        nlohmann::json mine = run(world.split(0, rank), {begin_steps, on, first_of_hosts, slack});
        if (rank == 0) result = std::move(mine);
    });
    const double here = since(begin);
    cairn::simulated_rank most;
    cairn::joules_by_cause joules;  // of all hosts
    std::int64_t messages = 0;
    for (const cairn::simulated_rank& r : all.ranks) {
        most.computed = std::max(most.computed, r.computed);
        most.waited = std::max(most.waited, r.waited);
        most.bytes = std::max(most.bytes, r.bytes);
        most.messages = std::max(most.messages, r.messages);
        messages += r.messages;
        most.peak = std::max(most.peak, r.peak);
        if (r.joules.total() > most.joules.total()) most.joules = r.joules;
        joules += r.joules;
    }
    const double resident = static_cast<double>(cairn::peak_resident_bytes());
    std::printf("simulated: %d ranks of %s, %.4g s with their start\n", ranks, on.c_str(), all.seconds);
    std::printf(
        "the simulation itself: %.1f s for the start, %.1f s for the steps behind it, %.1f GiB, %lld messages\n", start,
        here - start, resident / (1 << 30), static_cast<long long>(messages));
    std::printf("most of a rank: computing %.4g s, waiting %.4g s, %.4g MB sent in %lld messages, %.1f MiB of memory\n",
                most.computed, most.waited, 1e-6 * static_cast<double>(most.bytes),
                static_cast<long long>(most.messages), static_cast<double>(most.peak) / (1 << 20));
    const cairn::simulated_rank& first = all.ranks.front();
    result["simulation"] = {{"machine", machine.name},
                            {"calibrated", machine.calibrated},
                            {"seconds", all.seconds},
                            {"most_computed_s", most.computed},
                            {"most_waited_s", most.waited},
                            {"most_bytes_sent", most.bytes},
                            {"most_messages", most.messages},
                            {"most_peak_bytes", most.peak},
                            {"messages", messages},
                            {"wall_start_s", start},
                            {"wall_steps_s", here - start},
                            {"resident_bytes", resident},
                            {"first_rank",
                             {{"computed_s", first.computed},
                              {"waited_s", first.waited},
                              {"bytes", first.bytes},
                              {"messages", first.messages}}}};
    if (machine.power) {
        const double hosts = joules.total();
        std::printf(
            "joules, modelled: %.4g of hosts (computing %.1f %%, waiting %.1f %%, idle %.1f %%; most of a rank %.4g), "
            "%.4g of links\n",
            hosts, 100 * joules.computing / hosts, 100 * joules.waiting / hosts, 100 * joules.idle / hosts,
            most.joules.total(), all.link_joules);
        result["simulation"]["joules"] = {{"computing", joules.computing},
                                          {"waiting", joules.waiting},
                                          {"idle", joules.idle},
                                          {"links", all.link_joules},
                                          {"most_of_a_rank", most.joules.total()}};
        for (const cairn::simulated_rank& r : all.ranks)
            result["simulation"]["joules"]["by_rank"].push_back(r.joules.total());
    }
    const auto sent = [&](std::size_t r) {  // of training: the report's traces are a simulation's own
        const auto traces = all.ranks[r].sent.find("traces");
        return all.ranks[r].bytes - before[r].bytes - (traces == all.ranks[r].sent.end() ? 0 : traces->second.bytes);
    };
    std::size_t busiest = 0;
    double computed = 0;  // by another rank, as like as not
    for (std::size_t r = 0; r < all.ranks.size(); ++r) {
        if (sent(r) > sent(busiest)) busiest = r;
        computed = std::max(computed, all.ranks[r].computed - before[r].computed);
    }
    if (ranks > 1)
        result["simulation"]["sent_in_a_step"] = {
            {"rank", busiest}, {"causes", tell_causes(all.ranks[busiest].sent, before[busiest].sent, steps)}};
    result["simulation"]["a_step"] = {{"most_bytes_sent", static_cast<double>(sent(busiest)) / steps},
                                      {"most_computed_s", computed / steps}};
    if (asked.samples > 0) tell_whole_training(asked, static_cast<double>(sent(busiest)) / steps, result);
    return result;
#else
    (void)ranks, (void)run, (void)slack;
    cairn::fail(
        "--simulate: this program was built without SimGrid; install libsimgrid-dev (3.32 or newer), configure "
        "and build again; --plan tells bytes without it (machine ",
        machine.name, " reads well)");
#endif
}
