#pragma once
// What a run's ranks send in a training step, by the formulas of perf/data_movement.hpp: of its mesh, buckets, stages
// and layers. What is compressed is left out, or counted as if it were not (K-FAC's): its bytes are known when it is
// made.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/parallel/kfac_ranks.hpp>
#include <cairn/parallel/tensor/vocabulary_cross_entropy.hpp>
#include <cairn/perf/data_movement.hpp>
#include <cairn/train/run_parts.hpp>

#include <algorithm>
#include <optional>
#include <utility>

namespace cairn {

namespace detail {

/// What the first layer of a chain sends backward, which as the first of a model it does not: no one needs the gradient
/// over samples.
template <class T, Device D>
shared_sends backward_sends_of_first(sequential<T, D>& chain, const shape& in) {
    if (chain.size() == 0) return {};
    const layer_children<T, D> inside = chain[0].children();
    if (inside.size() == 1 && inside.how == combination::chain) return backward_sends_of_first(*inside[0].layers, in);
    return chain[0].cost(in).backward_input.sends;
}

/// Of this rank's layers, in all micro-batches of its part of a batch.
template <Device D, class T>
shared_sends layer_sends(run_parts<D, T>& run, const std::vector<int>& stages, const std::vector<range>& samples) {
    shared_sends all;
    for (const range& micro_batch : samples)
        for (std::size_t i = 0; i < stages.size(); ++i) {
            const bool first = stages[i] == 0;
            const shape in =
                first ? run.model.over.batch_here(micro_batch.count, run.task.data.sample)
                      : run.model.plan->boundaries[static_cast<std::size_t>(stages[i])].with(0, micro_batch.count);
            const layer_cost c = run.model.layers[i].cost(in);
            for (const phase_cost* phase : {&c.forward, &c.backward_input, &c.backward_weight}) all += phase->sends;
            if (first) all -= backward_sends_of_first(run.model.layers[i], in);
        }
    return all;
}

/// K-FAC's, once its layers are known; nothing where gradients have no such preconditioner, or one rank has it.
template <Device D>
std::optional<kfac_movement> kfac_of(preconditioner<float, D>* curvature) {
    auto* const method = dynamic_cast<kfac<float, D>*>(curvature);
    const auto* const ranks = method ? dynamic_cast<const distributed_kfac_base<float, D>*>(&method->roles()) : nullptr;
    if (!ranks || !ranks->has_place()) return {};
    kfac_movement all{.statistics = ranks->ranks_config().statistics,
                      .place = ranks->place(),
                      .layers = {},
                      .bucket_bytes = ranks->ranks_config().bucket_bytes};
    for (kfac_layer<float, D>& b : method->blocks()) {
        kfac_movement::layer layer{.direction = b.size()};
        b.each_factor([&](kfac_factor<float, D>& f, char side) {
            (side == 'a' ? layer.factor_a : layer.factor_g) += triangle(f.statistics);
            (side == 'a' ? layer.made_a : layer.made_g) += packed_size(f.statistics, method->config().form);
        });
        all.layers.push_back(layer);
    }
    return all;
}

}  // namespace detail

/// See the top of the file. After the first step, which tells K-FAC its layers. `run` outlives the result.
template <Device D, class T>
step_movement movement_of(run_parts<D, T>& run) {
    const run_mesh& mesh = run.mesh;
    const index_t here = shard_of(run.task.batch, mesh.axes.data, mesh.grid.coordinate("data")).count;
    const std::vector<range> samples = shards_of(here, static_cast<int>(std::min(run.task.micro_batches, here)));
    step_movement s{.data = mesh.axes.data, .spatial = mesh.axes.spatial_ranks(), .micro_batches = std::ssize(samples)};
    const ranks<D>* const replicas = run.replicas.ranks.get();
    if (replicas && !run.replicas.compresses)
        for (const bucket& b : run.replicas.ranks->gradients.reducer().buckets()) s.buckets.push_back(b.size());
    s.all_reduce = all_reduce_named(run.task.settings.get("parallel.all_reduce", std::string("auto")));
    s.automatic = [&over = run.replicas.over->host](index_t bytes) { return automatic_all_reduce<float>(over, bytes); };
    if (replicas && !replicas->owners.empty()) {
        s.zero_stage = run.task.settings.get("parallel.zero_stage", 0, from_to(0, 2));
        s.owners = replicas->owners;
    }
    if (replicas && replicas->group) {
        s.batch_norm_ranks = replicas->group->size();
        for (const auto& [name, t] : run.model.buffers())
            if (name.ends_with("running_mean")) s.batch_norms.push_back(t->size());
    }
    s.kfac = detail::kfac_of(run.update.curvature.get());

    std::vector<int> stages{0};  // here
    if (run.model.plan) {
        const std::vector<int>& rank_of = run.model.plan->rank_of_stage;
        stages = run.update.trainer->stages().numbers();
        for (std::size_t b = 1; b < rank_of.size(); ++b)
            s.boundaries.push_back(
                {rank_of[b - 1], rank_of[b],
                 run.model.plan->boundaries[b].with(0, here).size() * static_cast<index_t>(sizeof(T))});
        s.tied_weights = run.update.trainer->stages().tied_sends();
    }
    s.layers = detail::layer_sends(run, stages, samples);
    const bool has_last = !run.model.plan || run.update.trainer->stages().has_last();
    if (run.model.outputs_are_cut && has_last)  // each label is a row of logits
        for (const range& micro_batch : samples)
            s.layers.tensor +=
                vocabulary_cross_entropy<any_communicator>{
                    run.model.tensor_ranks.get(), run.task.data.info.count(),
                    run.task.settings.get("loss.label_smoothing", 0.0, from_below(0, 1))}
                    .sends(micro_batch.count * run.task.data.info.labels_each);
    return s;
}

/// By this rank, in a step.
template <Device D, class T>
traffic sent_in_step(run_parts<D, T>& run) {
    const int stage = run.model.plan ? run.mesh.grid.coordinate("pipeline") : 0;
    return sent_in_step(movement_of(run), {.replica = run.replicas.over->rank(), .pipeline = stage});
}

}  // namespace cairn
