#pragma once
// train.activation_memory = auto: chooses for each layer among keep, recompute and two codecs, so that a step takes the
// least time whose peak of memory fits (stash/plan.hpp), from what was measured here and now:
//   time of a pass                 without packing: what an operation of the planner's units takes
//   codecs                         bytes and seconds of each layer, from passes that pack everything by one of them
//   peak of a plan                 rehearsed: passes of n and 3n samples follow it, and from their peaks, a straight
//                                  line in the number of samples, follows that of a step; a plan that seems to fit is
//                                  rehearsed in full
// The planner's own idea of a peak is not exact where codecs are: its budget is moved by what the rehearsal was off,
// and the cheapest plan that a rehearsal found to fit is taken. On several ranks all rehearse what rank 0 plans.

#include <cairn/train/activation_state.hpp>

#include <functional>
#include <string>

namespace cairn {

/// How ranks agree; one rank needs neither.
struct rank_agreement {
    std::function<std::string(std::string)> of_root = [](std::string mine) { return mine; };
    std::function<double(double)> largest = [](double mine) { return mine; };
};

/// See the top of the file. `pass(n)`: forward and backward of n samples, gradients dropped. `in`: what the model reads
/// in a step, or in each of its micro-batches; `part`: samples to measure with. `limit`: bytes of the pool. Throws
/// where no plan fits, saying by how much.
template <Device D, class Pass>
void plan_activations(compressed_activations<D>& activations, sequential<float, D>& chain, const shape& in,
                      index_t part, index_t limit, const rank_agreement& ranks, Pass&& pass) {
    memory_pool& pool = D::memory();
    const auto follow = [&](const stash_plan& mine) {
        activations.follow(mine);
        const std::string plan = ranks.of_root(text_of(activations));
        restore(activations, std::span(&plan, 1));
        apply(chain, *activations.plan());
    };
    // Memory of a pass of n samples besides what is live, and a plan with its peak: by a straight line, or measured.
    const auto highest = [&](index_t n) {
        const index_t live = pool.total().live;
        const memory_pool::peak_watch watch(pool);
        pass(n);
        return double(watch.total() - live);
    };
    const auto with_peak = [&](stash_plan plan, double beside) {
        plan.predicted_peak = static_cast<index_t>(ranks.largest(double(pool.total().live) + beside));
        plan.added_work = ranks.largest(plan.added_work);
        return plan;
    };
    const index_t more = std::min(3 * part, in.front());
    const auto rehearse = [&](const stash_plan& plan) {
        follow(plan);
        const double of_part = highest(part), slope = more > part ? (highest(more) - of_part) / double(more - part) : 0;
        return with_peak(plan, of_part + slope * double(in.front() - part));
    };
    const auto beyond_limit = [&](auto&& work) {
        const index_t own = pool.set_own_limit(memory_pool::no_limit);
        work();
        pool.set_own_limit(own);
    };
    const auto rehearse_in_full = [&](const stash_plan& plan) {
        double beside = 0;
        beyond_limit([&] { beside = highest(in.front()); });
        return with_peak(plan, beside);
    };
    // Codes grow and shrink from step to step, and workspaces of threads are there at once or not.
    const index_t room = limit - limit / 50;

    const bool first = !activations.plan();
    if (!first) {  // stays, while it fits well
        const stash_plan now = rehearse(*activations.plan());
        if (now.predicted_peak <= room && double(now.predicted_peak) > 0.9 * double(limit)) return follow(now);
    }

    // Costs of all layers and codecs.
    const double share = double(in.front()) / double(part);
    chain.recompute({});
    activations.packer().keep_all(true);
    D::wait();
    const stopwatch watch;
    pass(part);
    D::wait();
    const double unit = watch.seconds() / stash_planner<float, D>(chain, in.with(0, part)).work_of_step();
    activations.packer().keep_all(false);
    packing_costs costs(static_cast<std::size_t>(chain.size()));
    activations.packer().time_codecs(true);
    for (int codec = 0; codec < compressed_activations<D>::codec_numbers; ++codec) {
        activations.pack_all_by(static_cast<typename compressed_activations<D>::codec_number>(codec));
        for (int twice = 0; twice < 2; ++twice) pass(part);  // the first is cold
        const auto found = activations.costs_of_last_pass(chain.size());
        for (std::size_t i = 0; i < costs.size(); ++i)
            costs[i].push_back({found[i].kept * share, found[i].packed * share, found[i].work * share / unit});
    }
    activations.packer().time_codecs(false);

    stash_planner<float, D> planner(chain, in, costs);
    stash_plan best = planner.smallest_plan();
    if (first) {  // kernels are chosen by measurement, which takes more memory than they do, for these sizes once
        follow(best);
        beyond_limit([&] {
            for (const index_t n : {part, more, in.front()}) pass(n);
        });
    }
    best = rehearse(best);
    if (best.predicted_peak <= room) best = rehearse_in_full(best);
    const auto mib = [](index_t bytes) { return (bytes + (1 << 20) - 1) >> 20; };
    const index_t missing = best.predicted_peak - room;
    require(missing <= 0, "train.memory_limit_mb = ", mib(limit), ": no plan fits. The smallest needs ",
            mib(limit + missing), " MiB, ", mib(missing),
            " more; take a smaller train.batch, more train.micro_batches, or more ranks");
    const double least = ranks.largest(double(planner.smallest_peak()));
    double budget = -ranks.largest(double(pool.total().live - room));
    for (int trial = 0; trial < 6 && budget > least; ++trial) {
        stash_plan plan = planner.cheapest_plan(static_cast<index_t>(budget));
        const double modelled = ranks.largest(double(plan.predicted_peak));
        plan = rehearse(plan);
        if (plan.predicted_peak <= room) plan = rehearse_in_full(plan);
        if (plan.predicted_peak <= room) {
            if (plan.added_work < best.added_work) best = plan;
            if (best.added_work == 0 || double(plan.predicted_peak) > 0.95 * double(limit)) break;
        }
        // Less than this plan, where it was too much.
        const auto over = double(plan.predicted_peak - room);
        budget = over > 0 ? std::min(budget, modelled) - 1.02 * over : budget - 0.9 * over;
    }
    follow(best);
}

}  // namespace cairn
