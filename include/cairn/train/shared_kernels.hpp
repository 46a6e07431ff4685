#pragma once
// One choice of kernels for all ranks, made before the first step, so that ranks and a resumed run compute the same
// bits.

#include <cairn/comm/wait_for.hpp>
#include <cairn/device/autotune.hpp>
#include <cairn/train/run_messages.hpp>
#include <cairn/train/run_parts.hpp>

#include <set>

namespace cairn {

namespace detail {

/// Samples that a rank may get at a time, in whole batches and in the short last one; not 0.
template <class Batches>
std::set<index_t> counts_of(const Batches& from, int ranks) {
    const index_t batch = from.config().batch, rest = from.samples_per_epoch() % batch;
    std::set<index_t> counts;
    for (int r = 0; r < ranks; ++r) {
        counts.insert(shard_of(batch, ranks, r).count);
        counts.insert(shard_of(rest, ranks, r).count);
    }
    counts.erase(0);
    return counts;
}

template <Device D, class T>
void try_micro_batch(run_parts<D, T>& run, const shape& batch, index_t samples) {
    const auto choose = [&] { run.update.algorithm->choose_kernels(batch.with(0, samples), mode::train); };
    if (samples > 1) return choose();
    with_context(
        "a micro-batch of one sample (a larger train.batch avoids it, or train.drop_last = true where it is "
        "in the last batch of an epoch)",
        choose);
}

/// The micro-batches of each phase, once.
template <Device D, class T>
void try_micro_batches(run_parts<D, T>& run) {
    const auto pieces = static_cast<int>(run.task.micro_batches);
    for (const auto& part : run.batches.train->parts())
        for (const index_t count : counts_of(*part, run.mesh.axes.data))
            for (const int piece : std::set<int>{0, pieces - 1})
                if (const index_t micro = shard_of(count, pieces, piece).count; micro > 0)
                    try_micro_batch(run, part->batch_shape(), micro);
}

}  // namespace detail

/// Collective: rank 0 measures, the others adopt its choice; in a pipeline, the first rank of each stage, one after
/// another; ranks that share layers run them together. One rank alone chooses at first use of a kernel, and those of
/// several phases before the first step, so that none has to wait.
template <Device D, class T>
void choose_kernels_of_ranks(run_parts<D, T>& run) {
    if (run.world.size() == 1) {
        if (run.batches.train->parts().size() > 1) detail::try_micro_batches(run);
        return;
    }
    const int size = run.mesh.axes.data;
    const auto choose = [&] {
        detail::try_micro_batches(run);
        for (const auto& test : run.batches.tests)
            for (const index_t count : detail::counts_of(*test, size))
                run.update.algorithm->choose_kernels(test->batch_shape().with(0, count), mode::evaluate);
    };
    const int sharing = run.mesh.axes.spatial_ranks() * run.mesh.axes.tensor;  // the last axes of the mesh
    for (int place = 0; place < run.mesh.axes.pipeline; ++place) {             // the first
        const int first = place * size * sharing;
        if (run.world.rank() >= first && run.world.rank() < first + sharing) choose();
        for (int r = first; r < first + sharing; ++r) {
            wait_for(run.world, r);  // it may measure for minutes
            share_autotune(run.world, r);
        }
    }
    // Later kernels, such as products of a preconditioner, are chosen alike too.
    autotune_cache::global().set_policy(autotune_policy::first);
}

/// One rank alone tries a micro-batch of one sample before the first step, where an epoch that it trains ends with one:
/// batch normalisation cannot do with it.
template <Device D, class T>
void try_short_batch(run_parts<D, T>& run) {
    const index_t rest = run.batches.train->samples_per_epoch() % run.batches.train->config().batch;
    if (run.world.size() > 1 || rest == 0 || run.batches.last_step < run.batches.train->batches_per_epoch()) return;
    if (rest / run.task.micro_batches <= 1) detail::try_micro_batch(run, run.batches.train->batch_shape(), 1);
}

/// Announces the layers to the preconditioner, whose state has their names.
template <Device D, class T>
void discover_layers(run_parts<D, T>& run) {
    if (!run.update.curvature) return;
    const index_t share = shard_of(run.task.batch, run.mesh.axes.data, run.mesh.grid.coordinate("data")).count;
    run.update.algorithm->choose_kernels(
        run.batch_shape().with(0, shard_of(share, static_cast<int>(run.task.micro_batches), 0).count), mode::train);
}

}  // namespace cairn
