#pragma once
// DualPipe (DeepSeek-V3, 2024): two streams of micro-batches run against each other, so that one's forward fills the
// other's bubble. Rank k holds two stages: k for stream A, which enters at rank 0, and p−1−k for stream B. The model is
// there twice. DualPipeV (Zeng et al. 2025) is one half of it, folded: two chunks placed as a V; PyTorch's list.
//   DualPipe:   h = p/2, r = min(k, p−1−k), n = m/2; direction 0: the stream that enters at this rank's nearer end
//   DualPipeV:  h = p,   r = rank,          n = m;   direction c: chunk c.   F0 B1 …: kind and direction
//   F0 × 2(h−r−1);  [F0 F1] × r+1;  [I1 W F1] × h−r−1;  [F0 B1 F1 B0] × n−2h+r+1;  [B1 F1 B0] × h−r−1;
//   [B1 B0] × r+1, of which the last r+1 are I;  [W I0] × h−r−1;  W × r+1.   W: the oldest of both directions
//   n ≥ 2h, T_F = T_I ≥ T_W:  bubble (p/2−1)(T_F+T_I−T_W), peak p+1;   DualPipeV (p−1)/2 (T_F+T_I−T_W), peak p+½

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

namespace detail {

inline action_list dualpipe_list(int h, int r, int n, const pipeline_lane& zero, const pipeline_lane& one) {
    list_writer list({zero, one});
    const auto times = [](int count, auto&& body) {
        for (int i = 0; i < count; ++i) body(i);
    };
    times(2 * (h - r - 1), [&](int) { list.forward(0); });
    times(r + 1, [&](int) {
        list.forward(0);
        list.forward(1);
    });
    times(h - r - 1, [&](int) {
        list.backward_input(1);
        list.backward_weight();
        list.forward(1);
    });
    times(n - 2 * h + r + 1, [&](int) {
        list.forward(0);
        list.backward(1);
        list.forward(1);
        list.backward(0);
    });
    times(h - r - 1, [&](int) {
        list.backward(1);
        list.forward(1);
        list.backward(0);
    });
    times(2 * (r + 1), [&](int i) {
        const std::size_t direction = i % 2 == 0 ? 1 : 0;
        i < r + 1 ? list.backward(direction) : list.backward_input(direction);
    });
    times(h - r - 1, [&](int) {
        list.backward_weight();
        list.backward_input(0);
    });
    times(r + 1, [&](int) { list.backward_weight(); });
    return list.take();
}

inline closed_form dualpipe_form(double ranks, double peak, int p, const stage_costs& t, const char* formula) {
    closed_form form{.peak = std::vector<double>(static_cast<std::size_t>(p), peak), .formula = formula};
    if (t.forward == t.input && t.weight <= t.input)
        form.makespan_bubble = form.own_window_bubble = ranks * (t.forward + t.input - t.weight);
    return form;
}

}  // namespace detail

inline pipeline_program dualpipe(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    require(p % 2 == 0 && m % 2 == 0 && m >= 2 * p, "schedule dualpipe: ", p, " ranks and ", m,
            " micro-batches; both must be even, with at least two micro-batches a rank, ", 2 * p);
    pipeline_program all{"dualpipe", p, m, 1, linear_placement(p), true, {}};
    for (int k = 0; k < p; ++k) {
        const pipeline_lane a{k, 0, m / 2}, b{p - 1 - k, m / 2, m};
        const bool near = k < p / 2;
        all.actions.push_back(detail::dualpipe_list(p / 2, std::min(k, p - 1 - k), m / 2, near ? a : b, near ? b : a));
    }
    return all;
}

inline pipeline_program dualpipe_v(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    require(m >= 2 * p, "schedule dualpipe_v: ", m, " micro-batches on ", p, " ranks; it needs at least ", 2 * p);
    pipeline_program all{"dualpipe_v", p, m, 2, v_placement(p), false, {}};
    for (int r = 0; r < p; ++r) all.actions.push_back(detail::dualpipe_list(p, r, m, {r, 0, m}, {2 * p - 1 - r, 0, m}));
    return all;
}

inline closed_form dualpipe_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks;
    return detail::dualpipe_form(p / 2 - 1, p + 1, p, t, "(p/2−1)(F+I−W), F = I ≥ W");
}
inline closed_form dualpipe_v_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks;
    return detail::dualpipe_form((p - 1) / 2.0, p + 0.5, p, t, "(p−1)/2 (F+I−W), F = I ≥ W");
}

}  // namespace cairn
