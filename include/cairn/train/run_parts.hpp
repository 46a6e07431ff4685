#pragma once
// The parts of a run, each made whole from those before it (builder.hpp):
//   task       settings and data
//   mesh       how ranks share it
//   model      this rank's part of the model              build_model.hpp
//   batches    this rank's part of every batch; how many
//   streams    what the model remembers of running texts  streams.hpp
//   replicas   ranks with the same parameters             build_replicas.hpp
//   update     the algorithm that trains the model
// loop.hpp trains with them, throughput.hpp times them, run_versions.hpp saves them.

#include <cairn/data/box_samples.hpp>
#include <cairn/optim/precondition/quadratic_step.hpp>
#include <cairn/parallel/slice_sums.hpp>
#include <cairn/stash/activation_memory.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/data_formats.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/optimizers.hpp>
#include <cairn/train/parallel_axes.hpp>
#include <cairn/train/phased_batches.hpp>
#include <cairn/train/pipeline_plan.hpp>
#include <cairn/train/shared_layers.hpp>
#include <cairn/train/state_settings.hpp>
#include <cairn/train/streams.hpp>
#include <cairn/train/trainer.hpp>
#include <cairn/train/weight_average.hpp>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace cairn {

/// As long as it lives, a pool holds at most so many bytes.
class limited_memory {
public:
    limited_memory(memory_pool& pool, index_t bytes) : pool_(pool) { pool_.set_own_limit(bytes); }
    ~limited_memory() { pool_.set_own_limit(memory_pool::no_limit); }
    limited_memory(const limited_memory&) = delete;
    limited_memory& operator=(const limited_memory&) = delete;

private:
    memory_pool& pool_;
};

/// The task: settings and data, the same on all ranks.
struct run_task {
    configuration settings;
    session_options options;
    std::string name;
    std::uint64_t seed = 1;
    data_parts data;
    std::string algorithm = "gradient";  // train.algorithm
    index_t batch = 1;                   // samples a step, over all ranks
    index_t micro_batches = 1;           // a step
    bool skips_non_finite = false;       // steps whose loss or gradients are not finite
    bool stops_divergence = true;        // where the loss grows to a multiple of its start
    state_settings states;

    /// Whether a step is one of all samples, by ADMM.
    bool is_split() const { return algorithm != "gradient"; }
};

/// How the ranks share model and batch.
struct run_mesh {
    run_mesh(parallel_axes a, any_communicator& world, std::optional<any_communicator> device_channel)
        : axes(std::move(a)), grid(world, axes.axes(), std::move(device_channel)) {}

    const parallel_axes axes;
    mesh<any_communicator> grid;
};

/// This rank's part of the model.
template <Device D, class T>
struct run_model {
    std::unique_ptr<limited_memory> memory_limit;                 // train.memory_limit_mb
    std::unique_ptr<tensor_axis<any_communicator>> tensor_ranks;  // null where there is no tensor axis
    shared_layers over;                                           // the ranks that share layers
    bool outputs_are_cut = false;                                 // over the ranks of the tensor axis
    std::vector<sequential<T, D>> layers;                         // all of them, or this rank's stages of a pipeline
    std::shared_ptr<const pipeline_plan> plan;                    // null where there is no pipeline
    std::unique_ptr<arena<float, D>> weights;
    std::optional<loss_scaler> scaler;  // of layers in float16
    index_t parameters = 0;             // trained values of the whole model
    double training_flops = 0;          // of one sample, in the whole model

    bool scales_itself() const { return scaler && scaler->dynamic(); }
    /// The same, as an algorithm runs it.
    model_stages<D, T> stages(run_mesh& mesh) {
        if (!plan) return {layers.front(), *weights};
        return {layers, *weights, mesh.grid["pipeline"], plan->rank_of_stage, plan->boundaries, [plan = plan](int m) {
                    return plan->program(m);
                }};
    }
    /// Running statistics of the layers.
    buffer_list<float, D> buffers() {
        buffer_list<float, D> all;
        for (auto& part : layers)
            for (auto& buffer : part.buffers()) all.push_back(buffer);
        return all;
    }
};

/// This rank's part of every batch.
template <Device D>
struct run_batches {
    using loader_type = prefetcher<D, any_dataset>;
    std::unique_ptr<phased_batches<D>> train;
    std::vector<std::unique_ptr<loader_type>> tests;  // of each phase; none where nothing is tested
    std::int64_t epochs = 1;
    std::int64_t total_steps = 0, last_step = 0, log_every = 1;  // updates
    double test_every = 1;                                       // epochs

    /// The test set in the size of the phase at hand; null where nothing is tested.
    loader_type* test() const { return tests.empty() ? nullptr : tests[train->now()].get(); }

    double epochs_of(std::int64_t steps) const { return train->phases().epochs_of(steps); }

    /// By batches, for a step may be skipped; counted from the first one of a phase.
    bool is_test_due() const {
        const auto [epoch, batch] = train->position();
        const training_phase& phase = train->phase();
        const double most = std::min(test_every, static_cast<double>(epochs));
        const std::int64_t apart = std::max<std::int64_t>(1, std::llround(most * static_cast<double>(phase.batches)));
        return test() && batch > 0 && ((epoch - phase.begin) * phase.batches + batch) % apart == 0;
    }
};

/// The ranks that have the same parameters.
template <Device D>
struct run_replicas {
    std::unique_ptr<channel<any_communicator>> over;
    std::unique_ptr<slice_sums<any_communicator>> slices;  // where a tensor axis cuts parameters
    std::optional<detail::shard_plan> shard;  // of the optimizer: a part of its state, or sums over stages and slices
    std::unique_ptr<cairn::ranks<D>> ranks;   // null on one rank
    bool compresses = false;                  // gradients
    bool compressor_has_momentum = false;     // so that the optimizer has none

    /// Whether each rank has a part of the optimizer's state.
    bool share_optimizer() const { return ranks && !ranks->owners.empty(); }
};

/// The algorithm that trains the model, and its parts.
template <Device D, class T>
struct run_update {
    std::unique_ptr<compressed_activations<D>> activations;  // null where they are kept
    std::unique_ptr<preconditioner<float, D>> curvature;     // null unless the optimizer has one
    std::unique_ptr<quadratic_step<D>> quadratic;            // null unless kfac.step_size asks for it
    std::unique_ptr<weight_average<D>> average;              // null unless train.ema asks for it
    std::unique_ptr<training_algorithm<D, T>> algorithm;
    cairn::trainer<D, T>* trainer = nullptr;  // the algorithm, where that is gradients; else null
    divergence_watch divergence;
};

/// See the top of the file. Parts refer to each other, so they stay where they were made.
template <Device D = cpu, class T = float>
struct run_parts {
    /// Collective: every rank makes the same. Throws before any training on settings that do not fit together.
    /// `device_channel`: the same ranks, by a communicator that carries tensors of D, where `w` cannot.
    run_parts(configuration settings, session_options options, any_communicator w,
              std::optional<any_communicator> device_channel = {});
    run_parts(const run_parts&) = delete;
    run_parts& operator=(const run_parts&) = delete;

    any_communicator world;
    run_task task;
    run_mesh mesh;
    run_model<D, T> model;
    run_batches<D> batches;
    run_streams<D> streams;
    run_replicas<D> replicas;
    run_update<D, T> update;

    bool is_root() const { return world.rank() == 0; }
    shape batch_shape() const { return model.over.batch_here(task.batch, task.data.sample); }
    /// "2 threads" or "4 ranks of 2 threads".
    std::string processors() const {
        return concat(world.size() == 1 ? "" : concat(world.size(), " ranks of "), threads(), " threads");
    }
    /// Collective: all ranks begin with the values of rank 0.
    void start_ranks() {
        if (replicas.ranks) broadcast_values(replicas.ranks->over, *model.weights, model.buffers());
        if (update.average) update.average->restart();
    }
    /// Collective: running statistics become the mean over the ranks.
    void average_buffers() {
        if (replicas.ranks) cairn::average_buffers(replicas.ranks->over, model.buffers());
    }
};

}  // namespace cairn
