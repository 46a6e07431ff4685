#pragma once
// A pipeline's schedule by plain loops over its printed lists: the times of all actions as the least fixpoint of
//   start = max(end of the action before it, ends of what it needs)
// found by sweeping all actions until nothing changes. In a circle of waiting times grow for ever: a deadlock.

#include <algorithm>
#include <array>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace oracle {

struct pipeline_action {
    int stage = 0, micro_batch = 0, rank = 0;
    char kind = 'F';
    double start = 0, end = 0;
    std::vector<std::pair<std::size_t, std::size_t>> needs = {};  // rank and position
};

struct pipeline_run {
    bool complete = true;   // every F once; every backward once, as B or as I and W; each on the rank of its stage
    bool finishes = false;  // no deadlock
    double makespan = 0, makespan_bubble = 0, own_window_bubble = 0;
    std::vector<double> peak;  // F whose W or B is not done, by rank
};

/// lists: "0F0 0B0" of each rank. rank_of_stage: empty: what stands where is not checked. times: T_F, T_I, T_W of each
/// stage.
inline pipeline_run pipeline(const std::vector<std::string>& lists, int stages, int micro_batches,
                             const std::vector<int>& rank_of_stage, const std::vector<std::array<double, 3>>& times,
                             double hop = 0) {
    pipeline_run r;
    std::vector<std::vector<pipeline_action>> all;
    std::map<std::string, int> count;
    std::map<std::string, std::pair<std::size_t, std::size_t>> where;  // of "F" or "I" (of B too), "stage.micro-batch"
    const auto name = [](char kind, int stage, int m) {
        return kind + std::to_string(stage) + "." + std::to_string(m);
    };
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
        std::istringstream in(lists[rank]);
        std::vector<pipeline_action> list;
        pipeline_action a;
        a.rank = static_cast<int>(rank);
        while (in >> a.stage >> a.kind >> a.micro_batch) {
            if (a.stage >= stages || a.micro_batch >= micro_batches) return r.complete = false, r;
            if (!rank_of_stage.empty() && rank_of_stage[static_cast<std::size_t>(a.stage)] != a.rank)
                r.complete = false;
            for (const char part : a.kind == 'B' ? std::string("IW") : std::string(1, a.kind)) {
                ++count[name(part, a.stage, a.micro_batch)];
                where[name(part, a.stage, a.micro_batch)] = {rank, list.size()};
            }
            list.push_back(a);
        }
        all.push_back(list);
    }
    for (int s = 0; s < stages; ++s)
        for (int m = 0; m < micro_batches; ++m)
            for (const char kind : {'F', 'I', 'W'}) r.complete = r.complete && count[name(kind, s, m)] == 1;
    if (!r.complete) return r;

    for (auto& list : all)
        for (pipeline_action& a : list) {
            const auto needs = [&](char kind, int stage) {
                a.needs.push_back(where[name(kind, stage, a.micro_batch)]);
            };
            const bool backward = a.kind == 'I' || a.kind == 'B';
            if (a.kind == 'F' && a.stage > 0) needs('F', a.stage - 1);
            if (backward) needs('F', a.stage);
            if (backward && a.stage + 1 < stages) needs('I', a.stage + 1);
            if (a.kind == 'W') needs('I', a.stage);
        }
    std::size_t actions = 0;
    for (const auto& list : all) actions += list.size();
    bool changed = true;
    for (std::size_t sweep = 0; sweep <= actions + 1 && changed; ++sweep) {  // a longest path has as many actions
        changed = false;
        for (auto& list : all)
            for (std::size_t i = 0; i < list.size(); ++i) {
                pipeline_action& a = list[i];
                a.start = i ? list[i - 1].end : 0;
                for (const auto& [rank, position] : a.needs)
                    a.start = std::max(a.start, all[rank][position].end + (static_cast<int>(rank) == a.rank ? 0 : hop));
                const auto& t = times[static_cast<std::size_t>(a.stage)];
                const double end = a.start + (a.kind == 'F'   ? t[0]
                                              : a.kind == 'I' ? t[1]
                                              : a.kind == 'W' ? t[2]
                                                              : t[1] + t[2]);
                changed = changed || end != a.end;
                a.end = end;
            }
    }
    r.finishes = !changed;
    double idlest = 1e300;
    for (const auto& list : all) {
        double busy = 0, saved = 0, peak = 0;
        for (const pipeline_action& a : list) {
            busy += a.end - a.start;
            saved += a.kind == 'F' ? 1 : a.kind == 'I' ? 0 : -1;
            peak = std::max(peak, saved);
        }
        r.peak.push_back(peak);
        idlest = std::min(idlest, busy);
        if (list.empty()) continue;
        r.makespan = std::max(r.makespan, list.back().end);
        r.own_window_bubble = std::max(r.own_window_bubble, list.back().end - list.front().start - busy);
    }
    r.makespan_bubble = r.makespan - idlest;
    return r;
}

}  // namespace oracle
