#pragma once
// The seam between the loop of a run and what trains its model:
//   step(batch, …)     one update: of a batch by gradients (trainer.hpp), of all samples by ADMM (admm_training.hpp)
//   state()            its part of a checkpoint, besides the model; state_loaded() after a checkpoint was read
//   stages(), goal()   the model as far as it is here, and what it is judged by: tests run it (train/evaluate.hpp)
//   figures()          of the last step, for metrics.jsonl
// Trained weights are those of the model's arena whichever algorithm trains them: tests, checkpoints and records work
// on the same model.

#include <cairn/core/device_scalar.hpp>
#include <cairn/data/micro_batches.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/optim/optimizer.hpp>
#include <cairn/train/model_stages.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cairn {

/// What a rank says in a step besides its loss.
struct step_votes {
    bool stop = false;  // it was asked to stop
    double states = 0;  // of the run's state (state/version_votes.hpp)
};

/// Result of one step, over all ranks.
struct step_result {
    double loss = 0;       // of the whole batch, before the update
    index_t samples = 0;   // of the whole batch
    bool skipped = false;  // a gradient was not finite, and the policy is to go on
    bool stop = false;     // some rank was asked to stop
    double states = 0;     // the sum of votes on the run's state

    bool taken() const { return !skipped && samples > 0; }  // 0: all samples of all ranks were left out
};

/// Results of a step's launches, before the host has waited for them; of this rank.
template <Device D>
struct step_scalars {
    struct piece {
        scalar_on<D> loss, correct;  // correct: samples classified right
    };
    std::vector<piece> pieces;              // of each micro-batch
    scalar_on<D> broken = 0;                // gradients that are not finite, where they are counted
    std::optional<scalar_on<D>> norm = {};  // of the gradients, where the update was launched too
};

/// State of an algorithm besides the model: tensors of this rank's layers, and numbers that are equal on all ranks.
template <Device D>
struct algorithm_state {
    std::vector<named_tensor<float, D>> tensors;
    std::vector<std::pair<std::string, std::int64_t*>> counters;
    std::vector<std::pair<std::string, double*>> numbers;
};

/// See the top of the file.
template <Device D, class T>
class training_algorithm {
public:
    virtual ~training_algorithm() = default;

    /// One update. `meanwhile` is called when the batch is no longer needed by the host alone. Throws on every rank
    /// alike where numbers are not finite, naming the step.
    virtual step_result step(micro_batches<D> batch, step_votes votes = {},
                             const std::function<void()>& meanwhile = {}) = 0;
    /// Updates done so far.
    virtual std::int64_t steps() = 0;

    virtual algorithm_state<D> state() = 0;
    virtual void state_loaded() = 0;

    virtual model_stages<D, T>& stages() = 0;
    virtual const any_objective<D>& goal() const = 0;
    /// Each kernel gets its algorithm for inputs of this shape, before the first step.
    virtual void choose_kernels(const shape& in, mode how) = 0;

    /// Of the last step, by the names that metrics.jsonl has for them.
    virtual std::vector<std::pair<std::string, double>> figures() = 0;
    /// Training samples of this rank classified right, and seen, since the last call; (0, 0) where nothing counts them.
    virtual std::pair<index_t, index_t> take_training_hits() = 0;
};

}  // namespace cairn
