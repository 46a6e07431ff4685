#pragma once
// The schedule `auto`: the best of greedy list scheduling (greedy.hpp, six settings) and of the schedules of this
// folder at the given times, among those that save no more than max_saved micro-batches on any rank. Best: smallest
// makespan bubble, then smallest own-window bubble.

#include <cairn/parallel/pipeline/schedules/greedy.hpp>
#include <cairn/parallel/pipeline/schedules/interleaved.hpp>
#include <cairn/parallel/pipeline/schedules/one_f_one_b.hpp>
#include <cairn/parallel/pipeline/schedules/v_half.hpp>
#include <cairn/parallel/pipeline/schedules/zb_h1.hpp>
#include <cairn/parallel/pipeline/schedules/zb_h2.hpp>
#include <cairn/parallel/pipeline/schedules/zb_v.hpp>
#include <cairn/parallel/pipeline/simulate.hpp>

#include <cmath>
#include <utility>
#include <vector>

namespace cairn {

namespace detail {

/// The programs that `auto` chooses from: those that follow the rules, whatever they save.
inline std::vector<pipeline_program> automatic_candidates(const schedule_shape& shape,
                                                          const std::vector<stage_costs>& costs, double max_saved) {
    const int p = shape.ranks, m = shape.micro_batches, v = shape.virtual_stages;
    std::vector<pipeline_program> all;
    for (const char* order : {"IFW", "FIW", "IWF"})
        for (const bool alternate : {false, true}) {
            pipeline_program greedy{"auto", p, m, v, v == 1 ? linear_placement(p) : looped_placement(p, v), false, {}};
            const int cap = static_cast<int>(std::floor(max_saved * v + 1e-9));
            if (schedule_greedily(greedy, costs, {order, alternate, cap})) all.push_back(std::move(greedy));
        }
    if (v == 1) {
        for (const auto& make : {one_f_one_b, zb_h1, zb_h2}) all.push_back(make(shape));
    } else {
        if (m % p == 0)
            for (const auto& make : {interleaved, interleaved_zb}) all.push_back(make(shape));
        if (v == 2) all.push_back(zb_v(shape));
        if (v == 2 && m >= p)
            for (const auto& make : {v_half, v_min}) all.push_back(make(shape));
    }
    return all;
}

}  // namespace detail

inline pipeline_program automatic(const schedule_shape& shape, const schedule_costs& given) {
    const auto stages = static_cast<std::size_t>(shape.ranks * shape.virtual_stages);
    const auto costs =
        given.stages.empty() ? std::vector<stage_costs>(stages, stage_costs{} / shape.virtual_stages) : given.stages;
    require(costs.size() == stages, "schedule auto: costs of ", costs.size(), " stages, there are ", stages);
    const double max_saved = given.max_saved > 0 ? given.max_saved : shape.ranks;
    pipeline_program best;
    std::pair<double, double> best_bubbles{std::numeric_limits<double>::infinity(), 0};
    for (pipeline_program& candidate : detail::automatic_candidates(shape, costs, max_saved)) {
        const pipeline_times t = simulate(candidate, costs);
        const std::pair bubbles{t.makespan_bubble, t.own_window_bubble};
        if (*std::max_element(t.peak.begin(), t.peak.end()) > max_saved + 1e-9 || bubbles >= best_bubbles) continue;
        best_bubbles = bubbles;
        best = std::move(candidate);
    }
    require(!best.actions.empty(), "schedule auto: no schedule of ", shape.ranks, " ranks and ", shape.virtual_stages,
            " stages a rank keeps to ", max_saved, " saved micro-batches; allow more");
    best.name = "auto";
    return best;
}

}  // namespace cairn
