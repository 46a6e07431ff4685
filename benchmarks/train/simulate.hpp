#pragma once
// train --simulate MACHINE.toml: the run's ranks as actors of one process on a described machine.

#include <cairn/comm/any.hpp>
#include <cairn/comm/simgrid.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/train/machine_file.hpp>
#include <cairn/train/process.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>

/// run(world, begin_steps) on each of `ranks` simulated ranks; returns rank 0's result, with what the ranks did
/// ("simulation"). Prints that, and how long the simulation took here: until the last rank called begin_steps, and from
/// there. Throws where this program was built without SimGrid.
/// `p_state`: that all kernels run in, instead of the file's; -1: the file's.
inline nlohmann::json simulate(
    const std::filesystem::path& file, int ranks, int p_state,
    const std::function<nlohmann::json(cairn::any_communicator, std::function<void()>)>& run) {
    cairn::machine_description machine = cairn::read_machine(file);
    cairn::require(p_state < 0 || machine.power, "--p-state ", p_state, ": machine ", machine.name,
                   " has no [hosts.watts]");
    if (p_state >= 0) machine.power->state = static_cast<std::size_t>(p_state);
#if CAIRN_HAS_SIMGRID
    cairn::set_threads(machine.threads);  // workspaces depend on it; no kernel runs
    nlohmann::json result;
    using clock = std::chrono::steady_clock;  // of this process: now() is the simulation's on a simulated rank
    const auto since = [](clock::time_point t) { return std::chrono::duration<double>(clock::now() - t).count(); };
    const clock::time_point begin = clock::now();
    double start = 0;
    const cairn::simulation all = cairn::run_simulated(machine, ranks, [&](cairn::simgrid_communicator& world) {
        const int rank = world.rank();
        nlohmann::json mine = run(world.split(0, rank), [&] { start = since(begin); });
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
    std::printf("simulated: %d ranks of %s%s, %.4g s with their start\n", ranks, machine.name.c_str(),
                machine.calibrated ? "" : " (described, not calibrated)", all.seconds);
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
    }
    return result;
#else
    (void)ranks, (void)run;
    cairn::fail(
        "--simulate: this program was built without SimGrid; install libsimgrid-dev (3.32 or newer), configure "
        "and build again; --plan tells bytes without it (machine ",
        machine.name, " reads well)");
#endif
}
