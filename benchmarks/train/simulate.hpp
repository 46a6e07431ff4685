#pragma once
// train --simulate MACHINE.toml: the run's ranks as actors of one process on a described machine.

#include <cairn/comm/any.hpp>
#include <cairn/comm/simgrid.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/train/machine_file.hpp>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <functional>

/// run(world) on each of `ranks` simulated ranks; returns rank 0's result, with what the ranks did ("simulation").
/// Prints that, too. Throws where this program was built without SimGrid.
/// `p_state`: that all kernels run in, instead of the file's; -1: the file's.
inline nlohmann::json simulate(const std::filesystem::path& file, int ranks, int p_state,
                               const std::function<nlohmann::json(cairn::any_communicator)>& run) {
    cairn::machine_description machine = cairn::read_machine(file);
    cairn::require(p_state < 0 || machine.power, "--p-state ", p_state, ": machine ", machine.name,
                   " has no [hosts.watts]");
    if (p_state >= 0) machine.power->state = static_cast<std::size_t>(p_state);
#if CAIRN_HAS_SIMGRID
    cairn::set_threads(machine.threads);  // workspaces depend on it; no kernel runs
    nlohmann::json result;
    const cairn::stopwatch watch;
    const cairn::simulation all = cairn::run_simulated(machine, ranks, [&](cairn::simgrid_communicator& world) {
        const int rank = world.rank();
        nlohmann::json mine = run(world.split(0, rank));
        if (rank == 0) result = std::move(mine);
    });
    cairn::simulated_rank most;
    cairn::joules_by_cause joules;  // of all hosts
    for (const cairn::simulated_rank& r : all.ranks) {
        most.computed = std::max(most.computed, r.computed);
        most.waited = std::max(most.waited, r.waited);
        most.bytes = std::max(most.bytes, r.bytes);
        most.messages = std::max(most.messages, r.messages);
        most.peak = std::max(most.peak, r.peak);
        if (r.joules.total() > most.joules.total()) most.joules = r.joules;
        joules += r.joules;
    }
    std::printf("simulated: %d ranks of %s%s, %.4g s with their start, in %.1f s here\n", ranks, machine.name.c_str(),
                machine.calibrated ? "" : " (described, not calibrated)", all.seconds, watch.seconds());
    std::printf("most of a rank: computing %.4g s, waiting %.4g s, %.4g MB sent in %lld messages, %.1f MiB of memory\n",
                most.computed, most.waited, 1e-6 * static_cast<double>(most.bytes),
                static_cast<long long>(most.messages), static_cast<double>(most.peak) / (1 << 20));
    result["simulation"] = {{"machine", machine.name},        {"calibrated", machine.calibrated},
                            {"seconds", all.seconds},         {"most_computed_s", most.computed},
                            {"most_waited_s", most.waited},   {"most_bytes_sent", most.bytes},
                            {"most_messages", most.messages}, {"most_peak_bytes", most.peak}};
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
