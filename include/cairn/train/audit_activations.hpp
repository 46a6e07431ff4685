#pragma once
// The audit of packed activations (stash/activation_memory.hpp) before a step of training: three times forward and
// backward of an eighth of the batch each, of which gradients alone are kept, and then a new plan where
// train.activation_memory = auto. Running statistics, random numbers of training and parameters stay as they are. On
// several ranks collective: bounds and plan are those of the first rank that has the place.

#include <cairn/comm/any.hpp>
#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/comm/collectives/text.hpp>
#include <cairn/stash/activation_memory.hpp>
#include <cairn/train/micro_batch_loss.hpp>
#include <cairn/train/micro_batches.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/plan_activations.hpp>

#include <algorithm>

namespace cairn {

/// `everyone`: the ranks that take a step together; null: this one alone. `pass(samples)`: the pass_context of a
/// device_batch.
template <Device D, class Pass>
void audit_activations(compressed_activations<D>& activations, model_stages<D, float>& model, arena<float, D>& weights,
                       const micro_batches<D>& batch, const micro_batch_loss<D>& loss, std::int64_t step,
                       any_communicator* everyone, Pass&& pass) {
    const index_t count = batch.count(), part = std::max<index_t>(std::min<index_t>(2, count / 2), count / 8);
    require(part >= 1, "train.activation_memory = compress: a rank has ", count,
            " samples of a batch, and measures the noise of gradients by two parts of it; take a larger train.batch");
    const std::uint64_t seed = pass(batch.whole()).random.seed;
    // Other numbers than the step's.
    activations.packer().begin_step(seed, ~static_cast<std::uint32_t>(step));
    const auto run = [&](index_t first, index_t samples, curvature_listener* listener) {
        micro_batches<D> piece(samples_of(batch.whole(), {first, samples}));
        piece.place(piece.first_sample(), samples);
        step_scalars<D> losses;
        model.observe(
            {samples}, [&](int m, tensor<float, D> y) { return loss.gradient(piece, m, std::move(y), losses); },
            [&](int m) {
                pass_context p = pass(piece[m]);
                p.repeated = true;
                p.curvature = listener;
                return stage_input<float, D>{piece[m].there.x.share(), p};
            });
    };
    const auto recompute = [&](bool on) {
        if (!activations.plans()) return;
        sequential<float, D>& chain = model.stages().front().layers();
        on&& activations.plan() ? apply(chain, *activations.plan()) : chain.recompute({});
    };
    const auto audit = [&] {
        activations.audit([&](int number, curvature_listener* listener) { run(number * part, part, listener); },
                          recompute);
        if (everyone) restore(activations, all_gather_text(*everyone, text_of(activations)));
    };
    audit();
    rank_agreement ranks;
    if (everyone) {
        ranks.of_root = [&](const std::string& mine) { return broadcast_text(*everyone, mine); };
        ranks.largest = [&](double mine) {
            all_reduce(*everyone, std::span<double>(&mine, 1), {.op = reduction::max});
            return mine;
        };
    }
    activations.schedule_after(step);
    if (!activations.plans()) return;
    const bool first = !activations.plan();
    const std::vector<index_t> samples = batch.samples();  // of the micro-batches
    const shape in = batch.whole().there.x.shape().with(0, *std::ranges::max_element(samples));
    plan_activations(activations, model.stages().front().layers(), in, part, D::memory().limit(), ranks,
                     [&](index_t n) {
                         run(0, n, nullptr);
                         weights.zero_grad();
                     });
    if (first) audit();  // bounds of the segments' inputs, which nothing has measured yet
}

}  // namespace cairn
