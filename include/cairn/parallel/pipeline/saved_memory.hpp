#pragma once
// Memory that a program's ranks keep for backward: from a forward until its W or B. Follows from the order of a list
// alone, so it is the same whatever the times.

#include <cairn/parallel/pipeline/program.hpp>

#include <cstddef>
#include <vector>

namespace cairn {

/// Bytes that one micro-batch keeps on a stage: after F until I or B, and after I until W.
struct saved_bytes {
    double after_forward = 0, after_input = 0;
};

/// Calls each(position, value) after each action of the rank: what is saved then.
template <class Each>
void for_each_saved(const pipeline_program& program, int rank, const std::vector<saved_bytes>& of_stage, Each&& each) {
    double now = 0;
    int position = 0;
    for (const action& a : program.actions[static_cast<std::size_t>(rank)]) {
        const saved_bytes& s = of_stage[static_cast<std::size_t>(a.stage)];
        switch (a.kind) {
            case action_kind::forward:
                now += s.after_forward;
                break;
            case action_kind::backward:
                now -= s.after_forward;
                break;
            case action_kind::backward_input:
                now += s.after_input - s.after_forward;
                break;
            case action_kind::backward_weight:
                now -= s.after_input;
                break;
        }
        each(position++, now);
    }
}

/// The most that a rank has saved at once.
inline double peak_saved(const pipeline_program& program, int rank, const std::vector<saved_bytes>& of_stage) {
    double peak = 0;
    for_each_saved(program, rank, of_stage, [&](int, double now) { peak = std::max(peak, now); });
    return peak;
}

/// In micro-batches of all stages of a rank: a chunk counts 1/v.
inline std::vector<double> peak_saved_micro_batches(const pipeline_program& program) {
    const std::vector<saved_bytes> chunks(static_cast<std::size_t>(program.stages()), {1, 1});
    std::vector<double> peaks;
    for (int rank = 0; rank < program.ranks; ++rank)
        peaks.push_back(peak_saved(program, rank, chunks) / program.virtual_stages);
    return peaks;
}

}  // namespace cairn
