#pragma once
// A whole run from its settings, in one object. Its parts, each in a header of its own:
//   builder.hpp      settings → task, mesh, model, batches, replicas, update (run_parts.hpp)
//   loop.hpp         epochs, steps, tests
//   run_versions.hpp the states that a resumed run goes on from
//   report.hpp       what a run leaves: metrics, record, page
//   throughput.hpp   training steps on generated data, timed
// On several ranks each builds the same and trains on its part of every batch.
//
// How a batch becomes an update, header by header, on any device (course/one-step.md tells it at length):
//   data/prefetcher.hpp              reads the samples of the next step and brings them to the device meanwhile
//   train/loop.hpp, trainer.hpp      takes the batch, and calls the rest in the order of trainer::step
//   data/micro_batches.hpp           cuts the batch into micro-batches
//   train/model_stages.hpp           the stages of the model that this rank has; which list of actions they run
//   parallel/pipeline/execute.hpp    runs the list: F, B, I, W of a stage (stage.hpp) and a micro-batch
//   parallel/pipeline/stage_links.hpp   activations to the stage behind, their gradients to the one before
//   nn/sequential.hpp                a stage's layers; what backward needs lies in nn/saved_tensors.hpp
//   train/micro_batch_loss.hpp       on the last stage, each micro-batch's part of the loss, and its gradient
//   core/arena.hpp                   parameters and gradients of a rank: one block each
//   parallel/gradient_reducer.hpp    buckets of final gradients leave while backward goes on;
//   parallel/gradient_sync.hpp       they become sums over the ranks that have the same stage
//   parallel/agreement.hpp           all ranks of all axes take the step, or none
//   train/step_hook.hpp              preconditioners and what else changes gradients
//   optim/any_optimizer.hpp          the update of this rank's stages; norms span all stages (build_replicas.hpp)

#include <cairn/train/builder.hpp>
#include <cairn/train/evaluate_versions.hpp>
#include <cairn/train/loop.hpp>
#include <cairn/train/plan.hpp>
#include <cairn/train/throughput.hpp>

#include <memory>
#include <optional>
#include <string>
#include <utility>

namespace cairn {

/// A run with its network on device D, whose layers compute in T (train/trainer.hpp).
template <Device D = cpu, class T = float>
class session {
public:
    /// Throws before any training on settings that do not fit together. `device_channel`: the same ranks, by a
    /// communicator that carries tensors of D, where `world` cannot.
    session(configuration settings, session_options options, any_communicator world = self_communicator{},
            std::optional<any_communicator> device_channel = {})
        : run_(std::make_unique<run_parts<D, T>>(std::move(settings), std::move(options), std::move(world),
                                                 std::move(device_channel))) {}

    /// Trains, tests after each epoch, and leaves the run's directory. Returns the final figures as a JSON object.
    nlohmann::json train() { return training_loop<D, T>(*run_).train(); }

    /// Tests the versions of options.evaluate and the mean of their predictions; trains nothing.
    nlohmann::json evaluate() { return evaluate_versions(*run_); }

    /// Times training steps on generated data. Prints what it measured and returns it; with `table` also the layers.
    nlohmann::json throughput(std::int64_t steps, bool table) { return measure_throughput(*run_, steps, table); }

    /// The whole model, or the first of this rank's stages.
    sequential<T, D>& model() { return run_->model.layers.front(); }

    /// Collective: what each rank would hold and do, as text; trains nothing.
    std::string plan() const { return describe_plan(*run_); }
    /// Collective, on phantom ranks: what `steps` training steps take (plan.hpp).
    nlohmann::json needs(std::int64_t steps) { return needs_of_steps(*run_, steps); }
    const any_communicator& world() const { return run_->world; }
    /// Of packed activations; empty where they are kept.
    audit_report audit() const { return run_->update.activations ? run_->update.activations->last() : audit_report{}; }

private:
    std::unique_ptr<run_parts<D, T>> run_;
};

}  // namespace cairn
