#pragma once
// GPipe (Huang et al. 2019): all forwards, then all backwards in the same order, so that gradients add up as in a
// serial run. Linear placement.
//   rank s:  F0 … F(m−1)  B0 … B(m−1)
//   bubble (p−1)(T_F + T_B);   peak m

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

inline pipeline_program gpipe(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    pipeline_program all{"gpipe", p, m, 1, linear_placement(p), false, {}};
    for (int s = 0; s < p; ++s) {
        list_writer list({{s, 0, m}});
        while (list.forward()) continue;
        while (list.backward()) continue;
        all.actions.push_back(list.take());
    }
    return all;
}

inline closed_form gpipe_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const double bubble = (shape.ranks - 1) * (t.forward + t.input + t.weight);
    return {bubble, bubble,
            std::vector<double>(static_cast<std::size_t>(shape.ranks), static_cast<double>(shape.micro_batches)),
            "(p−1)(F+I+W)"};
}

}  // namespace cairn
