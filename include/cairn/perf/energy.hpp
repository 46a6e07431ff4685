#pragma once
// What a described machine draws, in watts; joules are watts times seconds. Formulas of SimGrid's energy plugins
// (Heinrich et al., Predicting the Energy Consumption of MPI Applications, Cluster 2017), which comm/simgrid.hpp runs:
//   host   P(load, k) = waiting + (busy_k − waiting) · load     load: busy cores / cores; k: its p-state
//          P = idle  once its last rank is through
//   cable  P(load)    = idle + (busy − idle) · load             load: mean of both ways, bytes a second / bandwidth
// A rank that waits for a message polls: it draws `waiting`, not `idle`. In p-state k the clock runs at f_k of its
// highest frequency, memory as ever. A kernel of t seconds, of which its bytes need the share m, then takes
//   t_k = t · (m + (1 − m) / f_k)
// so that what arithmetic bounds slows by 1 / f_k, and what memory bounds does not.

#include <cairn/core/error.hpp>

#include <cstddef>
#include <string>
#include <vector>

namespace cairn {

/// Seconds at a frequency of what takes `seconds` at the highest, of which its bytes need the share `memory_share`.
inline double seconds_at_frequency(double seconds, double memory_share, double frequency) {
    return seconds * (memory_share + (1 - memory_share) / frequency);
}

/// A frequency that a processor can have.
struct power_state {
    double frequency = 1;  // of the highest, above 0
    double busy = 0;       // watts of the host, all cores busy
};

/// See the top of the file. Watts of a host.
struct host_power {
    double idle = 0, waiting = 0;
    std::vector<power_state> states;  // p-states, the highest frequency first
    std::size_t state = 0;            // of kernels, where their rank chooses no other

    /// With the share `load` of its cores busy in p-state k, the ranks on all others waiting.
    double watts(double load, std::size_t k = 0) const { return waiting + (states.at(k).busy - waiting) * load; }

    /// Throws naming what cannot be. `cores` of the host.
    void check(const std::string& where, int cores) const {
        const auto wrong = [&](const auto&... why) { fail(where, ": hosts.watts: ", why...); };
        if (states.empty())
            wrong("busy is missing: [[1, watts at the highest frequency], [frequency / highest, …], …]");
        if (states[0].frequency != 1)
            wrong("busy begins with frequency ", states[0].frequency, "; the first p-state is the highest, 1");
        if (state >= states.size()) wrong("p_state = ", state, "; busy has p-states 0 to ", states.size() - 1);
        constexpr double least = 0.1, most = 2000;  // of a core, its share of memory and accelerators included
        const double each = states[0].busy / cores;
        if (each < least || each > most)
            wrong(states[0].busy, " W of ", cores, " busy cores, ", each, " W each: were they ",
                  each < least ? "kW?" : "mW?");
        if (idle > waiting) wrong("idle = ", idle, " is above waiting = ", waiting);
        for (std::size_t k = 0; k < states.size(); ++k) {
            if (states[k].busy < waiting)
                wrong("p-state ", k, ": ", states[k].busy, " busy is below waiting = ", waiting);
            if (k > 0 && (states[k].frequency >= states[k - 1].frequency || states[k].busy >= states[k - 1].busy))
                wrong("p-state ", k, " of frequency ", states[k].frequency, " and ", states[k].busy,
                      " W follows one of ", states[k - 1].frequency, " and ", states[k - 1].busy,
                      " W: both fall from p-state to p-state");
        }
    }
};

/// See the top of the file. Watts of a cable with both its ends.
struct link_power {
    double idle = 0, busy = 0;

    double watts(double load) const { return idle + (busy - idle) * load; }

    /// Throws naming what cannot be.
    void check(const std::string& where) const {
        require(idle <= busy, where, ": network.watts: idle = ", idle, " is above busy = ", busy);
        require(busy >= 0.05 && busy <= 500, where, ": network.watts: ", busy, " W of a busy cable: were they ",
                busy < 0.05 ? "kW?" : "mW?");
    }
};

/// Joules, by what a host does meanwhile.
struct joules_by_cause {
    double computing = 0, waiting = 0, idle = 0;

    double total() const { return computing + waiting + idle; }
    joules_by_cause& operator+=(const joules_by_cause& other) {
        computing += other.computing, waiting += other.waiting, idle += other.idle;
        return *this;
    }
};

}  // namespace cairn
