#pragma once
// Joules of a schedule's step on a described machine, at full frequency and with frequency on slack.

#include <cairn/train/configuration.hpp>
#include <cairn/train/machine_file.hpp>
#include <cairn/train/pipeline_energy.hpp>

#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <vector>

namespace cairn {

struct schedule_energy {
    std::string machine;
    host_power power;
    step_energy full, on_slack;
    std::vector<std::vector<std::size_t>> states;  // p-state of each action, beside the program's lists
};

/// `costs` in seconds; a host for each rank. Throws where the machine has no watts.
inline schedule_energy energy_of_schedule(const pipeline_program& program, const std::vector<stage_costs>& costs,
                                          double hop, const std::string& machine_file) {
    const machine_description machine = read_machine(machine_file);
    require(machine.power.has_value(), "--energy ", machine_file, ": the machine has no [hosts.watts]");
    const pipeline_actions all = actions_of(program, costs, hop);
    const auto states = frequencies_on_slack(all.actions, *machine.power);
    return {machine.name, *machine.power,
            energy_of(all.actions, std::vector<std::size_t>(states.size(), 0), *machine.power, program.ranks),
            energy_of(all.actions, states, *machine.power, program.ranks), all.by_rank(program, states)};
}

inline void print_energy(const schedule_energy& e) {
    std::printf("\njoules of %zu hosts of %s, modelled; times are seconds\n", e.states.size(), e.machine.c_str());
    std::printf("full frequency     %10.6g s  %10.6g J\n", e.full.seconds, e.full.joules);
    std::printf("frequency on slack %10.6g s  %10.6g J  %+.1f %% joules, %+.2f %% time\n", e.on_slack.seconds,
                e.on_slack.joules, 100 * (e.on_slack.joules / e.full.joules - 1),
                100 * (e.on_slack.seconds / e.full.seconds - 1));
    std::vector<std::size_t> count(e.power.states.size());
    for (const auto& list : e.states)
        for (const std::size_t k : list) ++count[k];
    std::printf("actions            ");
    for (std::size_t k = 0; k < count.size(); ++k)
        std::printf("%s%zu at %g", k > 0 ? ", " : "", count[k], e.power.states[k].frequency);
    std::printf(" of the highest frequency\n");
}

inline nlohmann::json to_json(const schedule_energy& e) {
    const auto step = [](const step_energy& s) { return nlohmann::json{{"seconds", s.seconds}, {"joules", s.joules}}; };
    return {{"machine", e.machine},
            {"full_frequency", step(e.full)},
            {"frequency_on_slack", step(e.on_slack)},
            {"p_states", e.states}};
}

}  // namespace cairn
