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
    //! solution
    struct finished {
        bool done = false;
        double end = 0;
        int rank = 0;
    };
    const auto at = [&](int stage, int micro_batch) {
        return static_cast<std::size_t>(stage) * static_cast<std::size_t>(all.micro_batches) +
               static_cast<std::size_t>(micro_batch);
    };
    std::vector<finished> forward(at(all.stages, 0)), backward(forward);
    std::vector<std::vector<interval>> runs(all.lists.size());
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < all.lists.size(); ++r)
            while (runs[r].size() < all.lists[r].size()) {
                const action a = all.lists[r][runs[r].size()];
                std::vector<finished> needs;
                if (a.what == kind::forward) {
                    if (a.stage > 0) needs.push_back(forward[at(a.stage - 1, a.micro_batch)]);
                } else if (a.what == kind::backward_weight) {
                    needs.push_back(backward[at(a.stage, a.micro_batch)]);
                } else {
                    needs.push_back(forward[at(a.stage, a.micro_batch)]);
                    if (a.stage + 1 < all.stages) needs.push_back(backward[at(a.stage + 1, a.micro_batch)]);
                }
                if (std::any_of(needs.begin(), needs.end(), [](const finished& n) { return !n.done; })) break;
                const int rank = static_cast<int>(r);
                double start = runs[r].empty() ? 0 : runs[r].back().end;
                for (const finished& n : needs) start = std::max(start, n.end + (n.rank == rank ? 0 : hop));
                const double end = start + times[static_cast<std::size_t>(a.stage)].of(a.what);
                runs[r].push_back({start, end});
                if (a.what == kind::forward) forward[at(a.stage, a.micro_batch)] = {true, end, rank};
                if (a.what == kind::backward || a.what == kind::backward_input)
                    backward[at(a.stage, a.micro_batch)] = {true, end, rank};
                moved = true;
            }
    }
    return runs;
    //! starter
    // (void)all, (void)times, (void)hop;
    // throw std::logic_error("task 3: timeline is not written yet");
    //! end
}

/// The latest end of all ranks: how long the step takes. At least one action runs.
inline double makespan(const std::vector<std::vector<interval>>& runs) {
    //! solution
    double last = 0;
    for (const auto& rank : runs)
        for (const interval& i : rank) last = std::max(last, i.end);
    return last;
    //! starter
    // (void)runs;
    // throw std::logic_error("task 3: makespan is not written yet");
    //! end
}

/// How long each rank idles from time 0 until the step ends, that is, until the last rank does: all ranks wait for the
/// new weights.
inline std::vector<double> idle(const std::vector<std::vector<interval>>& runs) {
    //! solution
    std::vector<double> all;
    for (const auto& rank : runs) {
        double busy = 0;
        for (const interval& i : rank) busy += i.end - i.start;
        all.push_back(makespan(runs) - busy);
    }
    return all;
    //! starter
    // (void)runs;
    // throw std::logic_error("task 3: idle is not written yet");
    //! end
}

/// The most that each rank keeps at once, over all its stages: a micro-batch kept for two of them counts twice. Kept
/// from a forward until its B, or until its W where backward is in two halves.
inline std::vector<int> most_saved(const schedule& all) {
    //! solution
    std::vector<int> peaks;
    for (const auto& list : all.lists) {
        int now = 0, peak = 0;
        for (const action& a : list) {
            if (a.what == kind::forward) peak = std::max(peak, ++now);
            if (a.what == kind::backward || a.what == kind::backward_weight) --now;
        }
        peaks.push_back(peak);
    }
    return peaks;
    //! starter
    // (void)all;
    // throw std::logic_error("task 3: most_saved is not written yet");
    //! end
}

}  // namespace student
