#pragma once
// The parts of a run: settings, data, network, optimizer, ranks. builder.hpp makes them; loop.hpp trains with them,
// throughput.hpp times them, checkpoint.hpp saves them.

#include <cairn/data/box_samples.hpp>
#include <cairn/data/prefetcher.hpp>
#include <cairn/parallel/slice_sums.hpp>
#include <cairn/stash/activation_memory.hpp>
#include <cairn/train/configuration.hpp>
#include <cairn/train/data_formats.hpp>
#include <cairn/train/loss_scaler.hpp>
#include <cairn/train/parallel_axes.hpp>
#include <cairn/train/pipeline_plan.hpp>
#include <cairn/train/quadratic_step.hpp>
#include <cairn/train/shared_layers.hpp>
#include <cairn/train/trainer.hpp>

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

/// See the top of the file. Parts refer to each other, so they stay where they were made.
template <Device D = cpu, class T = float>
struct run_parts {
    using batches = prefetcher<D, any_dataset>;

    run_parts(configuration c, session_options o, any_communicator w)
        : settings(std::move(c)), options(std::move(o)), world(std::move(w)) {}
    run_parts(const run_parts&) = delete;
    run_parts& operator=(const run_parts&) = delete;

    configuration settings;
    session_options options;
    any_communicator world;
    std::optional<limited_memory> memory_limit;  // train.memory_limit_mb
    std::string name;
    std::uint64_t seed = 1;

    data_parts data;
    index_t batch = 1;                                     // samples a step, over all ranks
    index_t micro_batches = 1;                             // a step
    std::unique_ptr<batches> train_batches, test_batches;  // this rank's; the second is null where nothing is tested
    std::int64_t epochs = 1, total_steps = 0, last_step = 0, test_every = 1, save_every = 1, log_every = 1;

    // How the ranks share the model.
    parallel_axes axes;
    std::unique_ptr<mesh<any_communicator>> grid;
    std::unique_ptr<tensor_axis<any_communicator>> tensor_ranks;  // null where there is no tensor axis
    shared_layers over;
    bool outputs_are_cut = false;  // over the ranks of the tensor axis

    std::vector<sequential<T, D>> layers;  // of the whole model, or of this rank's stages of a pipeline
    double training_flops = 0;             // of one sample, in the whole model
    index_t parameters = 0;                // trained values of the whole model
    std::optional<pipeline_plan> plan;     // where there is a pipeline
    std::unique_ptr<arena<float, D>> weights;
    std::unique_ptr<compressed_activations<D>> activations;  // null where they are kept
    lr_schedule rate;
    std::optional<loss_scaler> scaler;                    // of layers in float16
    std::unique_ptr<preconditioner<float, D>> curvature;  // null unless the optimizer has one
    std::unique_ptr<quadratic_step<D>> quadratic;         // null unless kfac.step_size asks for it

    std::optional<channel<any_communicator>> replicas;   // the ranks that have the same parameters
    std::optional<slice_sums<any_communicator>> slices;  // where a tensor axis cuts parameters
    std::unique_ptr<cairn::ranks<D>> ranks;              // null on one rank
    std::vector<range> owners;  // of the optimizer's state, one a rank; empty: each rank has all of it
    bool compresses = false;
    bool skips_non_finite = false;  // steps whose loss or gradients are not finite

    std::string algorithm_kind = "gradient";  // train.algorithm
    std::unique_ptr<training_algorithm<D, T>> algorithm;
    cairn::trainer<D, T>* trainer = nullptr;  // the algorithm, where that is gradients; else null

    /// Whether a step is one of all samples, by ADMM.
    bool is_split() const { return algorithm_kind != "gradient"; }
    bool is_root() const { return world.rank() == 0; }
    bool scales_itself() const { return scaler && scaler->dynamic(); }
    /// What this rank has of the model, as an algorithm runs it.
    model_stages<D, T> stages() {
        if (!plan) return {layers.front(), *weights};
        return {layers, *weights, (*grid)["pipeline"], plan->rank_of_stage, plan->boundaries, [&plan = *plan](int m) {
                    return plan.program(m);
                }};
    }
    shape batch_shape() const { return over.batch_here(batch, data.sample); }
    /// Running statistics of the layers here.
    buffer_list<float, D> buffers() {
        buffer_list<float, D> all;
        for (auto& part : layers)
            for (auto& buffer : part.buffers()) all.push_back(buffer);
        return all;
    }
    double epochs_of(std::int64_t steps) const {
        return static_cast<double>(steps) / static_cast<double>(train_batches->batches_per_epoch());
    }
    /// "2 threads" or "4 ranks of 2 threads".
    std::string processors() const {
        return concat(world.size() == 1 ? "" : concat(world.size(), " ranks of "), threads(), " threads");
    }
    /// Collective: all ranks begin with the values of rank 0.
    void start_ranks() {
        if (ranks) broadcast_values(ranks->over, *weights, buffers());
    }
    /// Collective: running statistics become the mean over the ranks.
    void average_buffers() {
        if (ranks) cairn::average_buffers(ranks->over, buffers());
    }
};

}  // namespace cairn
