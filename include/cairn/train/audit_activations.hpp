#pragma once
// The audit of packed activations (stash/activation_memory.hpp) before a step of training: three times forward and
// backward of an eighth of the batch each, of which gradients alone are kept. Running statistics, random numbers of
// training and parameters stay as they are. On several ranks collective where layers are.

#include <cairn/stash/activation_memory.hpp>
#include <cairn/train/micro_batch_loss.hpp>
#include <cairn/train/micro_batches.hpp>
#include <cairn/train/model_stages.hpp>

#include <algorithm>

namespace cairn {

/// `pass(samples)`: the pass_context of a device_batch.
template <class Pass>
void audit_activations(compressed_activations& activations, model_stages<cpu, float>& model,
                       const micro_batches<cpu>& batch, const micro_batch_loss& loss, std::int64_t step, Pass&& pass) {
    const index_t count = batch.count(), part = std::max<index_t>(std::min<index_t>(2, count / 2), count / 8);
    require(part >= 1, "train.activation_memory = compress: a rank has ", count,
            " samples of a batch, and measures the noise of gradients by two parts of it; take a larger train.batch");
    const std::uint64_t seed = pass(batch.whole()).random.seed;
    activations.packer().begin_step(seed, ~static_cast<std::uint32_t>(step));  // other numbers than the step's
    activations.audit(step, [&](int number, curvature_listener* listener) {
        micro_batches<cpu> piece(samples_of(batch.whole(), {number * part, part}));
        piece.place(piece.first_sample(), part);
        step_scalars<cpu> losses;
        model.observe(
            {part}, [&](int m, tensor<float> y) { return loss.gradient(piece, m, std::move(y), losses); },
            [&](int m) {
                pass_context p = pass(piece[m]);
                p.repeated = true;
                p.curvature = listener;
                return stage_input<float, cpu>{piece[m].there.x.share(), p};
            });
    });
}

}  // namespace cairn
