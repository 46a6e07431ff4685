#pragma once
// What a trainer is told, and what it tells of a step.

#include <cairn/core/shape.hpp>
#include <cairn/train/shared_layers.hpp>

#include <cstdint>

namespace cairn {

struct trainer_config {
    std::uint64_t seed = 1;
    bool sharded = false;           // ZeRO: the optimizer updates this rank's part of the parameters alone
    bool may_drop_samples = false;  // corrupt samples are left out of batches
    bool stop_at_loss = true;  // one that is not finite is an error, though ranks skip steps whose gradients are not
    bool cuda_graph = false;   // steps are captured once and replayed (graph_recorder.hpp)
    shared_layers over = {};   // the ranks that share the model's layers
    // K-FAC alone:
    index_t quadratic_model_stride = 1;  // its quadratic model sees one sample in so many
    index_t mc_label_stride =
        0;  // statistics from labels that the network draws for one sample in so many; 0: the data's
};

/// What one step did, over all ranks.
struct step_result {
    double loss = 0;       // of the whole batch, before the update
    index_t samples = 0;   // of the whole batch
    bool skipped = false;  // a gradient was not finite, and the policy is to go on
    bool stop = false;     // some rank was asked to stop

    bool taken() const { return !skipped && samples > 0; }  // 0: all samples of all ranks were left out
};

}  // namespace cairn
