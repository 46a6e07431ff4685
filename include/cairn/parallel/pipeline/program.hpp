#pragma once
// A pipeline's schedule as data: the placement of stages on ranks, and each rank's list of actions (action.hpp).
//   sF needs (s−1)F;   sI and sB need sF and (s+1)I or (s+1)B;   sW needs sI.   Each rank runs its list in order.
// Placements: linear, stage s on rank s;  looped, s on s mod p;  V, s on min(s, 2p−1−s).

#include <cairn/parallel/pipeline/action.hpp>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

namespace cairn {

/// Time of one micro-batch on a stage, in any unit.
struct stage_costs {
    double forward = 1, input = 1, weight = 1;  // T_F, T_I, T_W
    double of(action_kind kind) const {
        return kind == action_kind::forward           ? forward
               : kind == action_kind::backward_input  ? input
               : kind == action_kind::backward_weight ? weight
                                                      : input + weight;
    }
    stage_costs operator/(double parts) const { return {forward / parts, input / parts, weight / parts}; }
};

/// Parameters of a schedule.
struct schedule_shape {
    int ranks = 1, micro_batches = 1;  // p, m
    int virtual_stages = 0;            // v, stages of a rank; 0: what the schedule needs, 2 where it leaves a choice
};

/// Costs and limits for the search of the schedule `auto`.
struct schedule_costs {
    std::vector<stage_costs> stages = {};  // of each stage; empty: equal stages, unit times
    double max_saved = 0;                  // micro-batches of a rank saved at once; 0: p, as 1F1B
};

/// See the top of the file.
struct pipeline_program {
    std::string name;
    int ranks = 1, micro_batches = 1, virtual_stages = 1;
    std::vector<int> rank_of_stage;
    bool mirrored =
        false;  // DualPipe: micro-batches from m/2 on go the other way, stage s on rank p−1−rank_of_stage[s]
    std::vector<action_list> actions;  // of each rank
    // Beside the lists: p-states in which simulated ranks run them (train/pipeline_energy.hpp); empty: as ever.
    std::vector<std::vector<std::size_t>> power_states = {};

    int stages() const { return static_cast<int>(rank_of_stage.size()); }
    int rank_of(int stage, int micro_batch) const {
        const int rank = rank_of_stage[static_cast<std::size_t>(stage)];
        return mirrored && micro_batch >= micro_batches / 2 ? ranks - 1 - rank : rank;
    }
};

/// Closed forms of a schedule's bubble and memory: whole-stage times, a chunk takes T/v. NaN: there is no formula.
struct closed_form {
    static constexpr double unknown = std::numeric_limits<double>::quiet_NaN();
    double makespan_bubble = unknown, own_window_bubble = unknown;
    std::vector<double> peak = {};  // saved micro-batches by rank; a single number: of the worst rank
    std::string formula = {};       // of the makespan bubble
};

inline std::vector<int> linear_placement(int ranks) {
    std::vector<int> rank_of_stage(static_cast<std::size_t>(ranks));
    for (int s = 0; s < ranks; ++s) rank_of_stage[static_cast<std::size_t>(s)] = s;
    return rank_of_stage;
}
inline std::vector<int> looped_placement(int ranks, int virtual_stages) {
    std::vector<int> rank_of_stage(static_cast<std::size_t>(ranks * virtual_stages));
    for (int s = 0; s < ranks * virtual_stages; ++s) rank_of_stage[static_cast<std::size_t>(s)] = s % ranks;
    return rank_of_stage;
}
inline std::vector<int> v_placement(int ranks) {
    std::vector<int> rank_of_stage(static_cast<std::size_t>(2 * ranks));
    for (int s = 0; s < 2 * ranks; ++s) rank_of_stage[static_cast<std::size_t>(s)] = std::min(s, 2 * ranks - 1 - s);
    return rank_of_stage;
}

/// The same costs for each stage of a program whose ranks take `whole`: a chunk takes whole / v.
inline std::vector<stage_costs> uniform_costs(const pipeline_program& program, const stage_costs& whole) {
    return std::vector<stage_costs>(static_cast<std::size_t>(program.stages()), whole / program.virtual_stages);
}

}  // namespace cairn
