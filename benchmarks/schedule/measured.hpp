#pragma once
// A schedule as it ran: the events of category "action" in trace.json, whose names end in 1F3 and whose process is the
// rank. An action begins when what it waited for has come: the end of a "communication" inside, 1F3/recv activation. Of
// several pipelines the first, of several steps one.

#include <cairn/parallel/pipeline/csv.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace cairn {

struct measured_schedule {
    pipeline_program program;
    pipeline_times times;            // seconds
    std::vector<stage_costs> costs;  // mean seconds of each stage; B counts half as I, half as W
};

/// Mean times of each stage.
inline std::vector<stage_costs> mean_costs(const pipeline_program& program, const pipeline_times& times) {
    std::vector<stage_costs> sum(static_cast<std::size_t>(program.stages()), {0, 0, 0});
    for (std::size_t r = 0; r < program.actions.size(); ++r)
        for (std::size_t i = 0; i < program.actions[r].size(); ++i) {
            const action& a = program.actions[r][i];
            stage_costs& s = sum[static_cast<std::size_t>(a.stage)];
            const double seconds = (times.actions[r][i].end - times.actions[r][i].start) / program.micro_batches;
            const bool both = a.kind == action_kind::backward;
            if (a.kind == action_kind::forward) s.forward += seconds;
            if (both || a.kind == action_kind::backward_input) s.input += both ? seconds / 2 : seconds;
            if (both || a.kind == action_kind::backward_weight) s.weight += both ? seconds / 2 : seconds;
        }
    return sum;
}

/// `step`: counted from 0; −1: the last of the trace.
inline measured_schedule parse_measured_schedule(const nlohmann::json& trace, const std::string& name, int step = -1) {
    struct run {
        action what;
        action_time when;
    };
    std::map<int, std::vector<run>> by_rank;
    std::map<std::pair<int, std::string>, std::vector<action_time>> waits;  // by rank and action
    const std::regex action_at_end("(?:^|/)([0-9]+[FBIW][0-9]+)$"), wait_inside("(?:^|/)([0-9]+[FBIW][0-9]+)/[^/]*$");
    for (const auto& event : trace.at("traceEvents")) {
        const std::string category = event.value("cat", ""), label = event.value("name", "");
        std::smatch found;
        if (!(category == "action" && std::regex_search(label, found, action_at_end)) &&
            !(category == "communication" && std::regex_search(label, found, wait_inside)))
            continue;
        const double start = event.at("ts").get<double>() * 1e-6;
        const action_time when{start, start + event.at("dur").get<double>() * 1e-6};
        const int rank = event.at("pid");
        if (category == "action")
            by_rank[rank].push_back({parse_actions(found[1]).front(), when});
        else
            waits[{rank, found[1]}].push_back(when);
    }
    for (auto& [rank, runs] : by_rank)
        for (run& r : runs) {
            const double begin = r.when.start;
            for (const action_time& w : waits[{rank, concat(r.what)}])
                if (w.start >= begin && w.end <= r.when.end) r.when.start = std::max(r.when.start, w.end);
        }
    require(!by_rank.empty(), name, ": no actions of a pipeline; trace a run with parallel.pipeline above 1");

    measured_schedule m;
    m.program.name = name;
    std::set<int> seen;  // stages of the ranks so far
    for (auto& [rank, runs] : by_rank) {
        std::stable_sort(runs.begin(), runs.end(),
                         [](const run& a, const run& b) { return a.when.start < b.when.start; });
        std::set<int> stages;
        for (const run& r : runs) stages.insert(r.what.stage);
        if (std::ranges::any_of(stages, [&](int s) { return seen.contains(s); })) continue;  // another pipeline
        seen.merge(stages);
        std::map<std::string, int> times_run;
        int steps = 0;
        for (const run& r : runs) steps = std::max(steps, ++times_run[concat(r.what)]);
        require(step < steps, name, ": rank ", rank, " has ", steps, " steps, counted from 0; there is no step ", step);
        const int wanted = step < 0 ? steps - 1 : step;
        times_run.clear();
        m.program.actions.emplace_back();
        m.times.actions.emplace_back();
        for (const run& r : runs) {
            if (times_run[concat(r.what)]++ != wanted) continue;
            m.program.actions.back().push_back(r.what);
            m.times.actions.back().push_back(r.when);
        }
    }
    with_context(name, [&] {
        detail::infer_placement(m.program);
        validate(m.program);
    });
    double first = std::numeric_limits<double>::infinity();
    for (const auto& rank : m.times.actions)
        for (const action_time& t : rank) first = std::min(first, t.start);
    for (auto& rank : m.times.actions)
        for (action_time& t : rank) t = {t.start - first, t.end - first};
    m.times = summarised(m.program, std::move(m.times.actions));
    m.costs = mean_costs(m.program, m.times);
    return m;
}

inline measured_schedule read_measured_schedule(const std::string& path, int step = -1) {
    std::ifstream in(path);
    require(bool{in}, "trace ", path, ": cannot be read");
    try {
        return parse_measured_schedule(nlohmann::json::parse(in), path, step);
    } catch (const nlohmann::json::exception& e) {
        fail("trace ", path, ": ", e.what());
    }
}

}  // namespace cairn
