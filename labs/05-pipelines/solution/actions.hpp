#pragma once
// Lab 5, given: a pipeline's schedule as data. Nothing here is to be written.
//
// p ranks hold `stages` stages of a network, stage s on rank s mod p. Each rank has a list of actions, which it runs in
// order:
//   1F2   forward of micro-batch 2 on stage 1
//   1B2   its backward: the gradient of the stage's input, and those of its weights
//   1I2   backward_input: the gradient of the stage's input alone
//   1W2   backward_weight: the gradients of its weights, after 1I2

#include <cstddef>
#include <string>
#include <vector>

namespace student {

enum class kind : char { forward = 'F', backward = 'B', backward_input = 'I', backward_weight = 'W' };

struct action {
    kind what = kind::forward;
    int stage = 0, micro_batch = 0;

    bool operator==(const action&) const = default;
};

struct schedule {
    int ranks = 1, stages = 1, micro_batches = 1;
    std::vector<std::vector<action>> lists;  // of each rank

    int rank_of(int stage) const { return stage % ranks; }
};

/// How long one micro-batch takes on a stage; a backward takes input + weight.
struct stage_times {
    double forward = 1, input = 1, weight = 1;

    double of(kind what) const {
        return what == kind::forward           ? forward
               : what == kind::backward_input  ? input
               : what == kind::backward_weight ? weight
                                               : input + weight;
    }
};

/// "1F2"
inline std::string text(const action& a) {
    return std::to_string(a.stage) + static_cast<char>(a.what) + std::to_string(a.micro_batch);
}

/// A line a rank: "0F0,0F1,0B0,0B1". The program train reads such files.
inline std::string csv(const schedule& all) {
    std::string lines;
    for (const auto& list : all.lists) {
        for (std::size_t i = 0; i < list.size(); ++i) lines += (i ? "," : "") + text(list[i]);
        lines += '\n';
    }
    return lines;
}

}  // namespace student
