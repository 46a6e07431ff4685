#pragma once
// Frequency on slack: actions that others do not wait for run at a lower frequency, and the step ends when it did.
//   earliest end of a   max over what it needs of (end + delay) + its seconds              forward pass
//   latest end of a     min over what needs it of (latest end − seconds − delay)           reverse pass
//   slack               latest end − earliest end
// From p-state to p-state, k = 1, 2, …: latest ends anew; then, in order, each action in p-state k − 1 goes to k where
// that saves joules and its end, after all that was slowed before it, is within its latest end. So no action's slack
// becomes negative, and slack that many actions share is spent by all of them before one gets more: power falls by the
// frequency cubed (perf/energy.hpp), so the first step down saves most. (Perseus, Chung et al., SOSP 2024, finds the
// best plan by graph cuts.)

#include <cairn/perf/energy.hpp>

#include <algorithm>
#include <cstddef>
#include <vector>

namespace cairn {

/// What an action needs: the end of an earlier one, and as many seconds (a message) after it.
struct needed_action {
    std::size_t action;
    double delay = 0;
};

/// An action at the highest frequency.
struct timed_action {
    double seconds = 0;
    double memory_share = 0;           // of its seconds, which are the same at any frequency
    std::vector<needed_action> needs;  // the action before it on its rank, and what others send; all before it in order
};

/// Seconds of each action, in its p-state.
inline std::vector<double> seconds_at(const std::vector<timed_action>& actions, const std::vector<std::size_t>& states,
                                      const host_power& power) {
    std::vector<double> seconds;
    for (std::size_t i = 0; i < actions.size(); ++i)
        seconds.push_back(
            seconds_at_frequency(actions[i].seconds, actions[i].memory_share, power.states.at(states[i]).frequency));
    return seconds;
}

/// When `a` begins, given the ends of what it needs.
inline double earliest_start(const timed_action& a, const std::vector<double>& ends) {
    double start = 0;
    for (const needed_action& need : a.needs) start = std::max(start, ends[need.action] + need.delay);
    return start;
}

inline std::vector<double> earliest_ends(const std::vector<timed_action>& actions, const std::vector<double>& seconds) {
    std::vector<double> ends(actions.size());
    for (std::size_t i = 0; i < actions.size(); ++i) ends[i] = earliest_start(actions[i], ends) + seconds[i];
    return ends;
}

/// If all is to be done at `deadline`.
inline std::vector<double> latest_ends(const std::vector<timed_action>& actions, const std::vector<double>& seconds,
                                       double deadline) {
    std::vector<double> ends(actions.size(), deadline);
    for (std::size_t i = actions.size(); i-- > 0;)
        for (const needed_action& need : actions[i].needs)
            ends[need.action] = std::min(ends[need.action], ends[i] - seconds[i] - need.delay);
    return ends;
}

/// P-state of each action, so that the last one ends as if all ran at the highest frequency.
inline std::vector<std::size_t> frequencies_on_slack(const std::vector<timed_action>& actions,
                                                     const host_power& power) {
    std::vector<std::size_t> states(actions.size(), 0);
    std::vector<double> seconds = seconds_at(actions, states, power), ends = earliest_ends(actions, seconds);
    const double deadline = ends.empty() ? 0 : *std::ranges::max_element(ends), rounding = 1e-12 * deadline;
    for (std::size_t k = 1; k < power.states.size(); ++k) {
        const std::vector<double> latest = latest_ends(actions, seconds, deadline);
        std::vector<std::size_t> lower = states;
        for (std::size_t i = 0; i < actions.size(); ++i)
            if (states[i] == k - 1) lower[i] = k;
        const std::vector<double> slowed = seconds_at(actions, lower, power);
        const auto joules = [&](std::size_t state, double s) { return (power.watts(1, state) - power.waiting) * s; };
        for (std::size_t i = 0; i < actions.size(); ++i) {
            const double start = earliest_start(actions[i], ends);
            if (lower[i] == k && start + slowed[i] <= latest[i] + rounding &&
                joules(k, slowed[i]) < joules(k - 1, seconds[i])) {
                states[i] = k;
                seconds[i] = slowed[i];
            }
            ends[i] = start + seconds[i];
        }
    }
    return states;
}

/// What a plan comes to: seconds of the step, and joules of `ranks` hosts that wait while they do not compute.
struct step_energy {
    double seconds = 0, joules = 0;
};
inline step_energy energy_of(const std::vector<timed_action>& actions, const std::vector<std::size_t>& states,
                             const host_power& power, int ranks) {
    const std::vector<double> seconds = seconds_at(actions, states, power), ends = earliest_ends(actions, seconds);
    step_energy step;
    if (!ends.empty()) step.seconds = *std::ranges::max_element(ends);
    step.joules = ranks * power.waiting * step.seconds;
    for (std::size_t i = 0; i < actions.size(); ++i)
        step.joules += (power.watts(1, states[i]) - power.waiting) * seconds[i];
    return step;
}

}  // namespace cairn
