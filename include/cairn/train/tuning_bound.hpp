#pragma once
// What no configuration of a run can be better than on a machine, from closed formulas, before anything is simulated:
//   computing   all operations and bytes of a step, shared evenly, at the rates of the machine, and the start of every
//               kernel, which each rank pays for each of its micro-batches; in a pipeline of p stages and m
//               micro-batches that is not split further, times (m + p − 1) / m
//   sending     bytes of dense gradients of a rank, over the highest rate of a message
//   joules      of hosts that wait or compute for so long
//   memory      parameters and gradients

#include <cairn/perf/machine_description.hpp>
#include <cairn/perf/tune.hpp>
#include <cairn/train/tuning_space.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>

namespace cairn {

/// Kernels, operations and bytes of a step on one rank that has all of model and batch, by kind.
struct run_work {
    struct sum {
        double calls = 0, flops = 0, bytes = 0;
    };
    std::map<std::string, sum> kinds;
};

namespace detail {

/// Seconds that a rank spends at least on kernels of this rate: of all their work, the share `part`, of their calls the
/// multiple `each`.
inline double least_seconds(const kernel_rate& rate, const run_work::sum& work, double part, double each,
                            double frequency) {
    double best = 0;  // the logarithm of how much faster than its formula a measured shape was
    for (const auto& [shape, found] : rate.measured) best = std::min(best, found.off);
    return std::exp(best) * (rate.start * work.calls * each +
                             part * (work.flops / rate.flops / frequency + work.bytes / rate.bandwidth));
}

inline double least_seconds(const machine_description& m, const run_work& work, double part, double each,
                            double frequency) {
    double all = 0;
    for (const auto& [kind, sum] : work.kinds) {
        double least = std::numeric_limits<double>::infinity();
        for (const auto& [kernel, rate] : m.kernels)
            if (kernel.first == kind) least = std::min(least, least_seconds(rate, sum, part, each, frequency));
        if (std::isinf(least)) least = m.other ? least_seconds(*m.other, sum, part, each, frequency) : 0;
        all += least + m.gap * sum.calls * each;
    }
    return all;
}

}  // namespace detail

/// See the top of the file.
inline tuning_outcome least_outcome(const rank_layout& at, const tuned_run& run, const run_work& work,
                                    const machine_description& m) {
    const double frequency = m.power ? m.power->states.at(at.p_state).frequency : 1;
    const double micro = static_cast<double>(at.micro_batches),
                 computing = detail::least_seconds(m, work, 1.0 / run.ranks, micro / at.pipeline, frequency);
    const bool plain_schedule = at.schedule == "1f1b" || at.schedule == "gpipe";
    const double stages = plain_schedule ? at.pipeline : 1;
    const double mine = sizeof(float) * run.parameters / (at.pipeline * at.tensor);  // bytes of gradients
    const double rounds = at.zero_stage == 1 ? 3 : 2;
    tuning_outcome least;
    least.bytes = at.compresses ? 0 : rounds * (at.data - 1) / at.data * mine;
    double fastest = 0;  // bytes a second
    for (const link_model& link : {m.between, m.inside})
        for (const link_point& p : link.points()) fastest = std::max(fastest, p.bytes / p.exchange);
    const double sending = fastest > 0 ? least.bytes / fastest : 0;
    least.seconds = std::max(computing * (micro + stages - 1) / micro, sending);
    least.memory = 2 * mine / (at.zero_stage == 2 ? at.data : 1);
    if (m.power) {
        double watts = m.power->states[at.p_state].busy - m.power->waiting;  // of a second at `frequency`
        if (at.on_slack)
            for (const power_state& state : m.power->states) watts = std::min(watts, state.busy - m.power->waiting);
        const int each = m.ranks_per_host * m.hosts_per_processor;
        const double processors = std::ceil(static_cast<double>(run.ranks) / each);
        least.joules = processors * m.power->waiting * least.seconds + run.ranks * watts / m.places() * computing;
    }
    return least;
}

}  // namespace cairn
