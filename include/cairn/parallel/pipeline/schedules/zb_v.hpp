#pragma once
// ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): two chunks a rank placed as a V, so that the
// first rank has the last stage too. At equal times no rank idles between its first and last action, with no more saved
// than 1F1B. The list is PyTorch's (ScheduleZBVZeroBubble).
//   n = max(m, 2p−1); actions of micro-batches ≥ m are dropped.  Rank r, number in brackets the chunk:
//   F(0) × 2(p−r)−1;  [F(1) F(0)] × r;  [F(1) I(1) W(1)] × p−r;
//   while F(1) is not done n times:  [F(0) if any is left,  I(0) W(0) F(1) I(1) W(1)];
//   [I(0) I(1)] × r;  [I(0) W(0)] × p−r;  the rest of W(1);  the rest of W(0).   W(c): the oldest of its chunk
//   m ≥ 2p−1 and T_W ≤ T_F ≤ T_I:  makespan bubble (p−1) max(T_I/2, T_I−T_W);  own window (p−1)(T_I−T_W);  peak p

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

inline pipeline_program zb_v(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches, n = std::max(m, 2 * p - 1);
    pipeline_program all{"zb_v", p, m, 2, v_placement(p), false, {}};
    for (int r = 0; r < p; ++r) {
        list_writer list({{r, 0, n}, {2 * p - 1 - r, 0, n}});
        const auto backward = [&](std::size_t chunk) {
            list.backward_input(chunk);
            list.backward_weight_of(chunk);
        };
        int last_stage_forwards = r;
        for (int i = 0; i < 2 * (p - r) - 1; ++i) list.forward(0);
        for (int i = 0; i < r; ++i) {
            list.forward(1);
            list.forward(0);
        }
        for (int i = 0; i < p - r; ++i, ++last_stage_forwards) {
            list.forward(1);
            backward(1);
        }
        for (; last_stage_forwards < n; ++last_stage_forwards) {
            list.forward(0);
            backward(0);
            list.forward(1);
            backward(1);
        }
        for (int i = 0; i < r; ++i) {
            list.backward_input(0);
            list.backward_input(1);
        }
        for (int i = 0; i < p - r; ++i) backward(0);
        while (list.backward_weight_of(1)) continue;
        while (list.backward_weight_of(0)) continue;
        action_list actions = list.take();
        std::erase_if(actions, [&](const action& a) { return a.micro_batch >= m; });
        all.actions.push_back(std::move(actions));
    }
    return all;
}

inline closed_form zb_v_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks;
    closed_form form{.formula = "(p−1) max(I/2, I−W), m ≥ 2p−1 and W ≤ F ≤ I"};
    if (shape.micro_batches < 2 * p - 1) return form;
    form.peak.assign(static_cast<std::size_t>(p), p);
    if (t.weight > t.forward || t.forward > t.input) return form;
    form.makespan_bubble = (p - 1) * std::max(t.input / 2, t.input - t.weight);
    form.own_window_bubble = (p - 1) * (t.input - t.weight);
    return form;
}

}  // namespace cairn
