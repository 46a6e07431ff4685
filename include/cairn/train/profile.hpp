#pragma once
// Time of a training step, layer by layer: the events of the trace, and the two floors of each layer,
//   floor = max(flops / matrix peak, bytes / copy bandwidth)      share of roofline = floor / time

#include <cairn/core/trace.hpp>

#include <algorithm>
#include <cstdio>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace cairn {

/// One leaf layer, summed over the steps of a trace.
struct profile_row {
    std::string path;
    double forward_seconds = 0, backward_seconds = 0;
    phase_cost forward{}, backward{};
    int steps = 0;
    double seconds() const { return forward_seconds + backward_seconds; }
};

/// Rows in order of first execution. Containers are left out: their layers have rows of their own, and what they do
/// themselves appears as "path (own)".
inline std::vector<profile_row> profile_of(const std::vector<trace_event>& events) {
    std::vector<profile_row> rows;
    std::map<std::string, std::size_t> at;
    std::map<std::string, double> inner_forward, inner_backward;  // time of the direct children of each path
    std::vector<trace_event> ordered;
    for (const trace_event& e : events)
        if (std::string_view(e.kind) == "compute" && *e.phase) ordered.push_back(e);
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    for (const trace_event& e : ordered) {
        const bool forward = std::string_view(e.phase) == "forward";
        const auto [entry, fresh] = at.emplace(e.path, rows.size());
        if (fresh) rows.push_back({.path = e.path});
        profile_row& row = rows[entry->second];
        (forward ? row.forward_seconds : row.backward_seconds) += e.end - e.begin;
        if (forward) {
            row.forward += e.cost.forward;
            row.backward += e.cost.backward_input;
            row.backward += e.cost.backward_weight;
            ++row.steps;
        }
        const auto slash = e.path.rfind('/');
        if (slash != std::string::npos)
            (forward ? inner_forward : inner_backward)[e.path.substr(0, slash)] += e.end - e.begin;
    }
    std::vector<profile_row> leaves;
    for (profile_row& row : rows) {
        const bool container = inner_forward.contains(row.path) || inner_backward.contains(row.path);
        if (container) {
            row.forward_seconds -= inner_forward[row.path];
            row.backward_seconds -= inner_backward[row.path];
            if (row.seconds() < 0.01 * (inner_forward[row.path] + inner_backward[row.path])) continue;
            row.forward = row.backward = {};
            row.path += " (own)";
        }
        leaves.push_back(row);
    }
    return leaves;
}

/// Prints the table. Peaks in flop/s and bytes/s; `steps` training steps lie in the trace.
inline void print_profile(std::ostream& out, const std::vector<profile_row>& rows, int steps, double peak_flops,
                          double peak_bytes) {
    double total = 0;
    for (const profile_row& row : rows) total += row.seconds();
    char line[256];
    std::snprintf(line, sizeof line, "%-34s %9s %9s %6s %9s %9s %9s %9s\n", "layer", "fwd ms", "bwd ms", "share",
                  "GFLOP", "MB", "GFLOP/s", "roofline");
    out << line;
    for (const profile_row& row : rows) {
        const double n = std::max(1, steps);
        const double flops = (row.forward.flops + row.backward.flops) / n,
                     bytes = (row.forward.bytes + row.backward.bytes) / n;
        const double seconds = row.seconds() / n;
        const auto floor_of = [&](const phase_cost& c) { return std::max(c.flops / peak_flops, c.bytes / peak_bytes); };
        const double floor = (floor_of(row.forward) + floor_of(row.backward)) / n;
        std::snprintf(line, sizeof line, "%-34s %9.3f %9.3f %5.1f%% %9.3f %9.2f %9.1f %8.1f%%\n", row.path.c_str(),
                      1e3 * row.forward_seconds / n, 1e3 * row.backward_seconds / n,
                      total > 0 ? 100 * row.seconds() / total : 0.0, flops / 1e9, bytes / 1e6,
                      seconds > 0 ? flops / seconds / 1e9 : 0.0, seconds > 0 ? 100 * floor / seconds : 0.0);
        out << line;
    }
    std::snprintf(line, sizeof line, "%-34s %9.3f ms a step in %d traced steps; peaks: %.0f GFLOP/s, %.1f GB/s\n",
                  "all layers", 1e3 * total / std::max(1, steps), steps, peak_flops / 1e9, peak_bytes / 1e9);
    out << line;
}

}  // namespace cairn
