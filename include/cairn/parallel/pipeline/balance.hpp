#pragma once
// Cuts a chain of units into S consecutive stages so that the slowest stage is as fast as possible (a pipeline runs at
// its pace), by dynamic programming over prefixes:
//   best(s, n) = min over k of max(best(s−1, k), crossing time of unit k + time of units k … n−1),
//                                                                            only k whose stage s keeps to its memory
// O(S n²). Of several cuts that are equally good, the one whose first stages are the shortest. The oracle of the tests
// tries all cuts.

#include <cairn/core/error.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace cairn {

/// Time and memory of a unit of a chain.
struct unit_load {
    double time = 0;         // of a micro-batch, in any unit
    double fixed_bytes = 0;  // parameters, gradients, optimizer state
    double saved_bytes = 0;  // of a micro-batch between its forward and its backward
    double crossing = 0;     // time that a stage which begins here takes to receive and return what crosses the cut
};

/// Memory of a stage: Σ fixed_bytes + (micro-batches in flight) · Σ saved_bytes ≤ limit.
struct memory_bound {
    double limit = std::numeric_limits<double>::infinity();
    std::vector<double> in_flight = {};  // of each stage; empty: 1
};

/// The units in front of which to cut, S − 1 of them, ascending. Throws where there are more stages than units, or
/// where no cut keeps to the bound.
inline std::vector<int> balance(const std::vector<unit_load>& units, int stages, const memory_bound& bound = {}) {
    const auto n = units.size(), count = static_cast<std::size_t>(std::max(stages, 0));
    require(stages >= 1 && count <= n, "pipeline: ", stages, " stages, but the model has ", n,
            " layers that it can be cut between; take fewer stages");
    require(bound.in_flight.empty() || bound.in_flight.size() == count, "balance: micro-batches in flight of ",
            bound.in_flight.size(), " stages, there are ", stages);
    constexpr double impossible = std::numeric_limits<double>::infinity();
    std::vector<double> time(n + 1), fixed(n + 1), saved(n + 1);  // sums of prefixes
    for (std::size_t i = 0; i < n; ++i) {
        time[i + 1] = time[i] + units[i].time;
        fixed[i + 1] = fixed[i] + units[i].fixed_bytes;
        saved[i + 1] = saved[i] + units[i].saved_bytes;
    }
    // best[s][i]: the slowest of stages s … S−1 when they hold units i … n−1; next[s][i]: where stage s then ends.
    std::vector best(count + 1, std::vector<double>(n + 1, impossible));
    std::vector next(count, std::vector<std::size_t>(n + 1, n));
    best[count][n] = 0;
    for (std::size_t s = count; s-- > 0;)
        for (std::size_t i = 0; i < n; ++i)
            for (std::size_t end = i + 1; end <= n; ++end) {
                const double flying = bound.in_flight.empty() ? 1 : bound.in_flight[s];
                if (fixed[end] - fixed[i] + flying * (saved[end] - saved[i]) > bound.limit) break;
                const double crossing = i > 0 ? units[i].crossing : 0;
                const double slowest = std::max(crossing + time[end] - time[i], best[s + 1][end]);
                if (slowest < best[s][i]) best[s][i] = slowest, next[s][i] = end;
            }
    require(best[0][0] < impossible, "pipeline: no cut into ", stages, " stages keeps each within ", bound.limit,
            " bytes; take more stages, smaller micro-batches or a schedule that saves less");
    std::vector<int> cuts;
    for (std::size_t s = 0, at = 0; s + 1 < count; ++s) cuts.push_back(static_cast<int>(at = next[s][at]));
    return cuts;
}

}  // namespace cairn
