#pragma once
// A program in time as text, a line a rank: each action as wide as it takes, dots where the rank idles. Where each rank
// has one stage, actions are printed without it.
//   0  F0 F1 ..... B0--- .. B1---
//   1  .. F0 B0--- F1 B1---

#include <cairn/parallel/pipeline/simulate.hpp>

#include <cmath>
#include <string>

namespace cairn {

/// `columns`: the most that a line takes; short actions then lose their labels.
inline std::string schedule_grid(const pipeline_program& program, const pipeline_times& times, int columns = 1000) {
    const auto label = [&](const action& a) {
        return program.virtual_stages == 1 && !program.mirrored ? concat(static_cast<char>(a.kind), a.micro_batch)
                                                                : concat(a);
    };
    double shortest = times.makespan, first = std::numeric_limits<double>::infinity();
    std::size_t widest = 0;
    for (std::size_t r = 0; r < program.actions.size(); ++r)
        for (std::size_t i = 0; i < program.actions[r].size(); ++i) {
            const action_time& t = times.actions[r][i];
            if (t.end > t.start) shortest = std::min(shortest, t.end - t.start);
            first = std::min(first, t.start);
            widest = std::max(widest, label(program.actions[r][i]).size());
        }
    if (!(times.makespan > 0)) return "";
    const double scale = std::min(static_cast<double>(widest + 1) / shortest, columns / times.makespan);
    const auto column = [&](double time) { return static_cast<std::size_t>(std::lround((time - first) * scale)); };

    std::string text;
    const std::size_t digits = std::to_string(program.ranks - 1).size();
    for (std::size_t r = 0; r < program.actions.size(); ++r) {
        std::string line(column(first + times.makespan), '.');
        for (std::size_t i = 0; i < program.actions[r].size(); ++i) {
            const std::size_t begin = column(times.actions[r][i].start), end = column(times.actions[r][i].end);
            if (end <= begin) continue;
            std::string cell = label(program.actions[r][i]);
            cell.resize(end - begin, '-');
            if (cell.size() > 1) cell.back() = ' ';
            line.replace(begin, cell.size(), cell);
            if (begin > 1 && line[begin - 1] == '.' && line[begin - 2] == '.') line[begin - 1] = ' ';
        }
        std::string rank = std::to_string(r);
        rank.insert(0, digits - rank.size(), ' ');
        text += concat(rank, "  ", line.substr(0, line.find_last_not_of(' ') + 1), '\n');
    }
    return text;
}

}  // namespace cairn
