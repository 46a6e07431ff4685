#pragma once
// 1F1B (PipeDream-Flush, Narayanan et al. 2021): backwards start as soon as they can, which bounds what is saved.
// Linear placement.
//   rank s:  w = min(p−1−s, m) forwards;  then for i = 0 … m−1:  F(w+i) if w+i < m;  B(i)
//   bubble (p−1)(T_F + T_B);   peak min(p−s, m)

#include <cairn/parallel/pipeline/list_writer.hpp>

namespace cairn {

inline pipeline_program one_f_one_b(const schedule_shape& shape) {
    const int p = shape.ranks, m = shape.micro_batches;
    pipeline_program all{"1f1b", p, m, 1, linear_placement(p), false, {}};
    for (int s = 0; s < p; ++s) {
        list_writer list({{s, 0, m}});
        for (int w = 0; w < p - 1 - s; ++w) list.forward();
        for (int i = 0; i < m; ++i) {
            list.forward();
            list.backward();
        }
        all.actions.push_back(list.take());
    }
    return all;
}

inline closed_form one_f_one_b_closed_form(const schedule_shape& shape, const stage_costs& t) {
    const double bubble = (shape.ranks - 1) * (t.forward + t.input + t.weight);
    closed_form form{bubble, bubble, {}, "(p−1)(F+I+W)"};
    for (int s = 0; s < shape.ranks; ++s) form.peak.push_back(std::min(shape.ranks - s, shape.micro_batches));
    return form;
}

}  // namespace cairn
