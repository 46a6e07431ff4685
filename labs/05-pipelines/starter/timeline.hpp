#pragma once
// Lab 5, task 3: when does each action run, who waits, and what is kept? From the lists and the times of the stages.

#include "actions.hpp"

#include <algorithm>
#include <stdexcept>

namespace student {

struct interval {
    double start = 0, end = 0;
};

/// When each action runs, beside the lists of a schedule that is right: intervals[rank][position].
///   start = the latest of: 0; the end of the action before it in the rank's list; the end of each action that it
///           needs, and `hop` more where another rank ran that action
///   end   = start + the time of the action on its stage
/// `times` has an entry for each stage.
inline std::vector<std::vector<interval>> timeline(const schedule& all, const std::vector<stage_times>& times,
                                                   double hop) {
    (void)all, (void)times, (void)hop;
    throw std::logic_error("task 3: timeline is not written yet");
}

/// The latest end of all ranks: how long the step takes. At least one action runs.
inline double makespan(const std::vector<std::vector<interval>>& runs) {
    (void)runs;
    throw std::logic_error("task 3: makespan is not written yet");
}

/// How long each rank idles from time 0 until the step ends, that is, until the last rank does: all ranks wait for the
/// new weights.
inline std::vector<double> idle(const std::vector<std::vector<interval>>& runs) {
    (void)runs;
    throw std::logic_error("task 3: idle is not written yet");
}

/// The most that each rank keeps at once, over all its stages: a micro-batch kept for two of them counts twice. Kept
/// from a forward until its B, or until its W where backward is in two halves.
inline std::vector<int> most_saved(const schedule& all) {
    (void)all;
    throw std::logic_error("task 3: most_saved is not written yet");
}

}  // namespace student
