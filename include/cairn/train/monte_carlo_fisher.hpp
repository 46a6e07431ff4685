#pragma once
// Curvature from labels that the model draws (the Fisher matrix, where those of the data give the empirical one): one
// more forward and backward of the step's micro-batches, in which layers announce their rows. Gradients are made
// afterwards, from the data's labels, unannounced.

#include <cairn/core/for_each.hpp>
#include <cairn/core/random.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/train/loss_scaling.hpp>
#include <cairn/train/micro_batches.hpp>
#include <cairn/train/model_stages.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// Of one sample in `stride` of each micro-batch. `pass(m)`: of micro-batch m, with the listener to curvature. The stages
/// tell it of the last backward.
template <class T, Device D, class Pass>
void observe_drawn_labels(model_stages<D, T>& model, const any_objective<D>& goal, const micro_batches<D>& batch,
                          index_t stride, const loss_scaling<D, T>& scaling, Pass&& pass) {
    const auto chosen = [&](int m) { return first_of(batch[m], stride); };
    std::vector<index_t> samples;
    for (int m = 0; m < batch.size(); ++m) samples.push_back(chosen(m).host.count);
    const auto input = [&](int m) {
        pass_context p = pass(m);
        p.repeated = true;
        p.weight_gradient = false;
        return stage_input<T, D>{cast<T>(chosen(m).there.x.share()), p};
    };
    const auto gradient = [&](int m, tensor<T, D> y) {
        const pass_context p = pass(m);
        const random_stream random = stream_of_path(p.random.seed, p.random.path, "sampled labels", p.random.step);
        tensor<float, D> dy = goal.sampled_gradient(cast<float>(std::move(y)), random, p.random.first_sample);
        for_each(functors::times<float>{static_cast<float>(batch.share(chosen(m).host.count))}, dy);
        return scaling.of_layers(std::move(dy));
    };
    model.observe(samples, gradient, input);
}

}  // namespace cairn
