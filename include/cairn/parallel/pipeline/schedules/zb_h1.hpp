#pragma once
// ZB-H1 (Qi et al. 2023, "Zero Bubble Pipeline Parallelism"): 1F1B with backward in two halves. W fills the bubble,
// with no more saved than 1F1B has on rank 0. Linear placement.
//   rank s:  min(p−1−s, m) forwards;  then for i = 0 … m−1:  F if any is left;  I(i);  if i ≥ s the oldest W;
//            then the remaining W
//   m ≥ p:  makespan bubble (p−1) max(T_F, T_I, T_F+T_I−T_W);   own window (p−1) max(T_I, T_F+T_I−T_W)
//   peak min(p, m) on every rank

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

inline pipeline_program zb_h1(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    pipeline_program all{"zb_h1", p, m, 1, linear_placement(p), false, {}};
    for (int s = 0; s < p; ++s) {
        list_writer list({{s, 0, m}});
        for (int w = 0; w < p - 1 - s; ++w) list.forward();
        for (int i = 0; i < m; ++i) {
            list.forward();
            list.backward_input();
            if (i >= s) list.backward_weight();
        }
        list.remaining_weights();
        all.actions.push_back(list.take());
    }
    return all;
}

inline closed_form zb_h1_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks, m = shape.micro_batches;
    closed_form form{.peak = std::vector<double>(static_cast<std::size_t>(p), std::min(p, m)),
                     .formula = "(p−1) max(F, I, F+I−W), m ≥ p"};
    if (m < p) return form;
    form.makespan_bubble = (p - 1) * std::max({t.forward, t.input, t.forward + t.input - t.weight});
    form.own_window_bubble = (p - 1) * std::max(t.input, t.forward + t.input - t.weight);
    return form;
}

}  // namespace cairn
