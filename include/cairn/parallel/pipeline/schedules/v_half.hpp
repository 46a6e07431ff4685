#pragma once
// V-Half and V-Min: half, or a third, of what 1F1B saves, for a larger bubble. V placement. The building blocks are
// those of Qi et al. 2024 ("Pipeline Parallelism with Controllable Memory"); how lists are made of them is our own.
//   planned start of micro-batch i on rank r, chunks 0 and 1:  6 i +
//     half:  F0 2r;  F1 3p−r−2;    I1 3p+g+2r−1;  I0 6p+g−r−2;  g = 3 if p is even, else 0
//     min:   F0 r;   F1 2p−1−r;    I1 2p+g+r;     I0 4p+g−1−r;  g = 2 if 3 | p, else 0
//   Each rank runs F and I in the order of planned start. In slots of unit time: the next F or I if its input is there
//   and, for an F, fewer than 2·cap chunks are saved; else the oldest W; else idle.
//   cap = ⌊(p+2)/2⌋ or ⌊(p+4)/3⌋ micro-batches is the peak of the worst rank.
//   Unit times, m ≥ p:  bubble half 1.5p − 1.5 (p even) or 1.5p − 2;   min 2p − 1.5 (3 | p) or 2p − 2.5

#include <cairn/parallel/pipeline/list_writer.hpp>

#include <array>

namespace cairn {

namespace detail {

/// F and I of a rank in the order of planned start.
inline action_list v_block_order(int p, int m, int r, bool half) {
    const int g = half ? (p % 2 == 0 ? 3 : 0) : (p % 3 == 0 ? 2 : 0);
    const std::array<int, 4> starts = half ? std::array{2 * r, 3 * p - r - 2, 3 * p + g + 2 * r - 1, 6 * p + g - r - 2}
                                           : std::array{r, 2 * p - 1 - r, 2 * p + g + r, 4 * p + g - 1 - r};
    const std::array<std::pair<action_kind, int>, 4> what{{{action_kind::forward, r},
                                                           {action_kind::forward, 2 * p - 1 - r},
                                                           {action_kind::backward_input, 2 * p - 1 - r},
                                                           {action_kind::backward_input, r}}};
    std::vector<std::pair<int, action>> planned;
    for (int i = 0; i < m; ++i)
        for (std::size_t k = 0; k < 4; ++k) planned.push_back({starts[k] + 6 * i, {what[k].first, what[k].second, i}});
    std::stable_sort(planned.begin(), planned.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    action_list order;
    for (const auto& [start, a] : planned) order.push_back(a);
    return order;
}

inline pipeline_program v_block_program(const schedule_shape& shape, bool half) {
    const int p = shape.ranks, m = shape.micro_batches, cap = half ? (p + 2) / 2 : (p + 4) / 3;
    pipeline_program all{half ? "v_half" : "v_min", p, m, 2, v_placement(p), false, {}};
    all.actions.resize(static_cast<std::size_t>(p));
    std::vector<action_list> order, weights(static_cast<std::size_t>(p));
    std::vector<std::size_t> next(static_cast<std::size_t>(p)), next_weight(next);
    for (int r = 0; r < p; ++r) order.push_back(v_block_order(p, m, r, half));
    std::vector<std::vector<bool>> done_forward(static_cast<std::size_t>(2 * p),
                                                std::vector<bool>(static_cast<std::size_t>(m)));
    std::vector<std::vector<bool>> done_input = done_forward;
    std::vector<int> saved(static_cast<std::size_t>(p));

    const auto runs = [&](std::size_t r, const action& a) {
        const auto s = static_cast<std::size_t>(a.stage), i = static_cast<std::size_t>(a.micro_batch);
        if (a.kind == action_kind::forward) return (s == 0 || done_forward[s - 1][i]) && saved[r] < 2 * cap;
        return done_forward[s][i] && (s + 1 == done_input.size() || done_input[s + 1][i]);
    };
    for (bool left = true; left;) {
        left = false;
        bool moved = false;
        std::vector<action> finished;
        for (std::size_t r = 0; r < order.size(); ++r) {
            if (next[r] < order[r].size() && runs(r, order[r][next[r]])) {
                finished.push_back(order[r][next[r]++]);
                all.actions[r].push_back(finished.back());
                if (finished.back().kind == action_kind::forward) ++saved[r];
                moved = true;
            } else if (next_weight[r] < weights[r].size()) {
                all.actions[r].push_back(weights[r][next_weight[r]++]);
                --saved[r];
                moved = true;
            }
        }
        for (const action& a : finished) {  // seen by others from the next slot on
            const auto s = static_cast<std::size_t>(a.stage), i = static_cast<std::size_t>(a.micro_batch);
            if (a.kind == action_kind::forward) {
                done_forward[s][i] = true;
            } else {
                done_input[s][i] = true;
                weights[static_cast<std::size_t>(all.rank_of(a.stage, a.micro_batch))].push_back(
                    {action_kind::backward_weight, a.stage, a.micro_batch});
            }
        }
        for (std::size_t r = 0; r < order.size(); ++r)
            left = left || next[r] < order[r].size() || next_weight[r] < weights[r].size();
        require(moved || !left, "schedule ", all.name, ": ", p, " ranks with ", m,
                " micro-batches deadlock within its bound of memory; take zb_v");
    }
    return all;
}

inline closed_form v_block_closed_form(const schedule_shape& shape, const stage_costs& t, bool half) {
    const int p = shape.ranks;
    closed_form form{.formula = half ? "1.5p−1.5 (p even), 1.5p−2 (p odd), unit times, m ≥ p ≥ 2"
                                     : "2p−1.5 (3 | p), else 2p−2.5, unit times, m ≥ p ≥ 2"};
    if (p < 2 || shape.micro_batches < p) return form;
    form.peak.assign(1, half ? (p + 2) / 2 : (p + 4) / 3);
    if (t.input != t.forward || t.weight != t.forward) return form;
    form.makespan_bubble = t.forward * (half ? 1.5 * p - (p % 2 == 0 ? 1.5 : 2) : 2 * p - (p % 3 == 0 ? 1.5 : 2.5));
    form.own_window_bubble = form.makespan_bubble;
    return form;
}

}  // namespace detail

inline pipeline_program v_half(const schedule_shape& shape) { return detail::v_block_program(shape, true); }
inline pipeline_program v_min(const schedule_shape& shape) { return detail::v_block_program(shape, false); }

inline closed_form v_half_closed_form(const schedule_shape& shape, const stage_costs& t) {
    return detail::v_block_closed_form(shape, t, true);
}
inline closed_form v_min_closed_form(const schedule_shape& shape, const stage_costs& t) {
    return detail::v_block_closed_form(shape, t, false);
}

}  // namespace cairn
