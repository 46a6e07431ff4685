#pragma once
// ZB-H2 (Qi et al. 2023): more forwards ahead, so that at equal times no rank idles between its first and its last
// action; nearly twice what 1F1B saves. Linear placement.
//   rank s:  min(2(p−s)−1, m) forwards;  then for i = 0 … m−1:  I(i);  if i ≥ 2s the oldest W;  F if any is left;
//            then the remaining W.  The order I, W, F matters: I, F, W saves 2p.
//   m ≥ 2p−1:  makespan bubble (p−1) max(T_F, T_F+T_I−2T_W) if T_W ≤ T_F, T_I;
//              own window (p−1) max(0, T_I−T_W, T_I−T_F, T_F+T_I−2T_W);   peak 2p−1 on every rank

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

inline pipeline_program zb_h2(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    pipeline_program all{"zb_h2", p, m, 1, linear_placement(p), false, {}};
    for (int s = 0; s < p; ++s) {
        list_writer list({{s, 0, m}});
        for (int w = 0; w < 2 * (p - s) - 1; ++w) list.forward();
        for (int i = 0; i < m; ++i) {
            list.backward_input();
            if (i >= 2 * s) list.backward_weight();
            list.forward();
        }
        list.remaining_weights();
        all.actions.push_back(list.take());
    }
    return all;
}

inline closed_form zb_h2_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks;
    closed_form form{.formula = "(p−1) max(F, F+I−2W), m ≥ 2p−1 and W ≤ F, I"};
    if (shape.micro_batches < 2 * p - 1) return form;
    const double rest = t.forward + t.input - 2 * t.weight;
    if (t.weight <= t.forward && t.weight <= t.input) form.makespan_bubble = (p - 1) * std::max(t.forward, rest);
    form.own_window_bubble = (p - 1) * std::max({0.0, t.input - t.weight, t.input - t.forward, rest});
    form.peak.assign(static_cast<std::size_t>(p), 2 * p - 1);
    return form;
}

}  // namespace cairn
