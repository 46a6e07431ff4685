#pragma once
// Interleaved 1F1B (Narayanan et al. 2021, Megatron-LM): v chunks a rank divide the bubble by v, for v times the
// messages. Looped placement. With split backward it is PyTorch's InterleavedZeroBubble; both lists are PyTorch's.
//   rounds of R micro-batches, R = m / max(1, m ÷ p), p where p divides m
//   forward number k:   chunk (k mod vR) ÷ R,  micro-batch (k ÷ vR) R + k mod R;   backward: chunk v−1−c
//   rank r:     min((v−1)R + 2(p−1−r), mv) forwards;  then for k = 0 … mv−1:  F if any is left;  B(k)
//   zero bubble:  min((v−1)R + (p−1−r), mv) forwards;  then F if any is left;  I(k);  if k ≥ r the oldest W;
//                 then the remaining W
//   m ≥ p:  bubble (p−1)(T_F+T_B)/v;   peak min((v−1)R + 2(p−1−r) + 1, mv)/v.   Zero bubble, p | m: ZB-H1's forms / v

#include <cairn/parallel/pipeline/program.hpp>
#include <cairn/parallel/pipeline/schedules/zb_h1.hpp>

namespace cairn {

namespace detail {

inline int interleaved_round(const schedule_shape& shape, const char* name) {
    const int rounds = std::max(1, shape.micro_batches / shape.ranks);
    require(shape.micro_batches % rounds == 0, "schedule ", name, ": ", shape.micro_batches, " micro-batches on ",
            shape.ranks, " ranks do not divide into ", rounds, " equal rounds; take a multiple of ", shape.ranks);
    return shape.micro_batches / rounds;
}

inline pipeline_program interleaved_program(const schedule_shape& shape, bool split) {
    const int p = shape.ranks, m = shape.micro_batches, v = shape.virtual_stages;
    pipeline_program all{split ? "interleaved_zb" : "interleaved", p, m, v, looped_placement(p, v), false, {}};
    const int round = interleaved_round(shape, all.name.c_str());
    for (int r = 0; r < p; ++r) {
        std::vector<pipeline_lane> lanes;
        for (int chunk = 0; chunk < v; ++chunk) lanes.push_back({chunk * p + r, 0, m});
        list_writer list(lanes);
        const auto chunk_of = [&](int k) { return static_cast<std::size_t>(k % (v * round) / round); };
        int forwards = 0;
        const auto forward = [&] {
            if (forwards < m * v) list.forward(chunk_of(forwards++));
        };
        for (int w = 0; w < (v - 1) * round + (split ? 1 : 2) * (p - 1 - r); ++w) forward();
        for (int k = 0; k < m * v; ++k) {
            const std::size_t chunk = static_cast<std::size_t>(v - 1) - chunk_of(k);
            forward();
            split ? list.backward_input(chunk) : list.backward(chunk);
            if (split && k >= r) list.backward_weight();
        }
        list.remaining_weights();
        all.actions.push_back(list.take());
    }
    return all;
}

}  // namespace detail

inline pipeline_program interleaved(const schedule_shape& shape) { return detail::interleaved_program(shape, false); }
inline pipeline_program interleaved_zb(const schedule_shape& shape) { return detail::interleaved_program(shape, true); }

inline closed_form interleaved_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const int p = shape.ranks, m = shape.micro_batches, v = shape.virtual_stages;
    closed_form form{.formula = "(p−1)(F+I+W)/v, m ≥ p"};
    if (m < p) return form;
    const int round = detail::interleaved_round(shape, "interleaved");
    form.makespan_bubble = form.own_window_bubble = (p - 1) * (t.forward + t.input + t.weight) / v;
    for (int r = 0; r < p; ++r)
        form.peak.push_back(std::min((v - 1) * round + 2 * (p - 1 - r) + 1, m * v) / static_cast<double>(v));
    return form;
}

inline closed_form interleaved_zb_closed_form(const schedule_shape& shape, const stage_costs& t) {
    closed_form form{.formula = "(p−1) max(F, I, F+I−W)/v, p | m"};
    if (shape.micro_batches % shape.ranks != 0) return form;
    const std::string formula = form.formula;
    form = zb_h1_closed_form(shape, t / shape.virtual_stages);
    form.formula = formula;
    return form;
}

}  // namespace cairn
