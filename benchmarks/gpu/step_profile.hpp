#pragma once
// Where the time of a training step goes on a GPU, by kind of layer and phase, compared with the floors of its kernels:
//   time of a kind   Σ over its layers of (end − begin − what layers inside took), between events in the stream
//   floor            Σ max(bytes / copy bandwidth, flops / matrix rate), of what kernels count (core/flop_counter.hpp)
//   to gain          time − floor
// The intervals are those of the trace (core/trace.hpp) on a clock whose times are numbers of marks: a mark is an
// event in the stream, and what kernels had counted by then. So nothing waits while the step runs; the marks' seconds
// are read at its end.

#include <cairn/core/trace.hpp>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cairn::gpu_benchmark {

/// One moment: seconds, and work counted until then.
struct step_mark {
    double seconds = 0, flops = 0, bytes = 0;
};

/// Of the layers of one kind (or of one layer) in one phase, a step.
struct profile_row {
    std::string kind, phase;  // forward, backward, loss, update
    int calls = 0;
    double seconds = 0, bytes_floor = 0, flops_floor = 0, floor = 0;
    double to_gain() const { return seconds - floor; }
};

struct step_profile {
    std::vector<profile_row> kinds, layers;  // most to gain first
    std::map<std::string, double> phases;    // seconds a step
    double seconds() const {
        double all = 0;
        for (const auto& [phase, of] : phases) all += of;
        return all;
    }
};

/// "conv 3x3" of "conv 3x3 64 -> 64, stride 2": the name, and the extents of a window.
inline std::string kind_of_layer(const std::string& description) {
    std::istringstream words(description);
    std::string name, next;
    words >> name >> next;
    const bool extents = next.find('x') != std::string::npos &&
                         next.find_first_not_of("0123456789x") == std::string::npos &&
                         next.find_first_of("0123456789") == 0;
    return extents ? name + ' ' + next : name;
}

inline std::string phase_of(const trace_event& e) {
    const std::string_view phase = e.phase;
    if (std::string_view(e.kind) == "optimizer") return "update";
    return std::string(phase.starts_with("backward") ? "backward" : phase.empty() ? "between" : phase);
}

/// events: whose times are numbers of marks. `steps` of them.
inline step_profile profile_of_steps(std::vector<trace_event> events, const std::vector<step_mark>& marks, int steps,
                                     double bytes_per_s, double flops_per_s) {
    struct interval {
        const trace_event* event;
        step_mark own;  // less what the intervals inside took
        bool holds_others = false;
    };
    std::stable_sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
    std::vector<interval> all;
    std::vector<std::size_t> open;
    for (const trace_event& e : events) {
        const step_mark &from = marks.at(static_cast<std::size_t>(e.begin)),
                        &to = marks.at(static_cast<std::size_t>(e.end));
        const step_mark took{to.seconds - from.seconds, to.flops - from.flops, to.bytes - from.bytes};
        while (!open.empty() && all[open.back()].event->end < e.begin) open.pop_back();
        if (!open.empty()) {
            interval& outer = all[open.back()];
            outer.own.seconds -= took.seconds, outer.own.flops -= took.flops, outer.own.bytes -= took.bytes;
            outer.holds_others = true;
        }
        open.push_back(all.size());
        all.push_back({&e, took});
    }
    using key = std::pair<std::string, std::string>;
    std::map<key, profile_row> kinds, layers;
    step_profile found;
    for (const interval& i : all) {
        const trace_event& e = *i.event;
        const std::string phase = phase_of(e);
        const double bytes_floor = i.own.bytes / bytes_per_s / steps, flops_floor = i.own.flops / flops_per_s / steps;
        const auto add = [&](profile_row& row, const std::string& kind) {
            row.kind = kind, row.phase = phase;
            ++row.calls;
            row.seconds += i.own.seconds / steps;
            row.bytes_floor += bytes_floor, row.flops_floor += flops_floor;
            row.floor += std::max(bytes_floor, flops_floor);
        };
        const std::string kind = i.holds_others && !e.layer.empty() ? "between layers"
                                 : e.layer.empty()                  ? phase
                                                                    : kind_of_layer(e.layer);
        add(kinds[{kind, phase}], kind);
        if (!i.holds_others) add(layers[{e.path, phase}], e.path);
        found.phases[phase] += i.own.seconds / steps;
    }
    const auto sorted = [&](const std::map<key, profile_row>& of) {
        std::vector<profile_row> rows;
        for (const auto& [name, row] : of) rows.push_back(row), rows.back().calls /= steps;
        std::stable_sort(rows.begin(), rows.end(),
                         [](const auto& a, const auto& b) { return a.to_gain() > b.to_gain(); });
        return rows;
    };
    found.kinds = sorted(kinds), found.layers = sorted(layers);
    return found;
}

/// As JSON, with the layers that have the most to gain.
inline std::string as_json(const step_profile& p, double seconds_a_step, double bytes_per_s, double flops_per_s,
                           std::size_t most_layers = 20) {
    std::ostringstream out;
    const auto rows = [&](const std::vector<profile_row>& of, std::size_t most) {
        for (std::size_t i = 0; i < std::min(most, of.size()); ++i)
            out << (i ? ",{" : "{") << "\"kind\":\"" << of[i].kind << "\",\"phase\":\"" << of[i].phase
                << "\",\"calls\":" << of[i].calls << ",\"seconds\":" << of[i].seconds
                << ",\"floor_seconds\":" << of[i].floor << ",\"bytes_floor\":" << of[i].bytes_floor
                << ",\"flops_floor\":" << of[i].flops_floor << ",\"bound\":\""
                << (of[i].bytes_floor >= of[i].flops_floor ? "bytes" : "arithmetic") << "\"}";
    };
    out << "{\"copy_bytes_per_s\":" << bytes_per_s << ",\"matrix_flops_per_s\":" << flops_per_s
        << ",\"gap_seconds\":" << std::max(0.0, seconds_a_step - p.seconds()) << ",\"phases\":{";
    const char* comma = "";
    for (const auto& [phase, seconds] : p.phases) out << std::exchange(comma, ",") << '"' << phase << "\":" << seconds;
    out << "},\"kinds\":[";
    rows(p.kinds, p.kinds.size());
    out << "],\"layers\":[";
    rows(p.layers, most_layers);
    out << "]}";
    return out.str();
}

}  // namespace cairn::gpu_benchmark
