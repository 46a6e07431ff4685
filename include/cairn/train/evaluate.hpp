#pragma once
// One pass of a model over data, in evaluation mode.

#include <cairn/data/micro_batches.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/stream_memory.hpp>
#include <cairn/objectives/objective.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/shared_layers.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// Outputs as they are.
struct unchanged_outputs {
    template <class Tensor>
    Tensor operator()(Tensor y, const batch& /*of*/) const {
        return y;
    }
};

/// Sums over this rank's part of one epoch of `data`, a prefetcher or another loader. Ranks that share the model have
/// the same part, but the sums are of one of them: the last of a pipeline, and of those that share layers `over` says
/// which. `in_flight`: batches that are on their way through a pipeline together. `change`: what is judged of the
/// model's outputs for a batch. `memory`: of data that are a stream, one batch in flight; it begins empty.
template <class T, Device D, class Loader, class Change = unchanged_outputs>
evaluation evaluate(model_stages<D, T>& model, const any_objective<D>& goal, Loader& data,
                    const shared_layers& over = {}, int in_flight = 1, Change&& change = {},
                    stream_memory<float, D>* memory = nullptr) {
    if (memory) memory->clear();
    evaluation sums = goal.start(), of_others = goal.start();
    std::vector<device_batch<D>> batches;
    const auto input = [&](int m) {
        const device_batch<D>& b = batches[static_cast<std::size_t>(m)];
        return stage_input<T, D>{cast<T>(b.there.x, memory_category::data),
                                 {.mode = mode::evaluate,
                                  .random = {.first_sample = b.host.first_sample, .samples = b.host.count},
                                  .memory = memory}};
    };
    const auto output = [&](int m, tensor<T, D> of_model) {
        const device_batch<D>& all = batches[static_cast<std::size_t>(m)];
        const tensor<float, D> y = change(cast<float>(std::move(of_model)), all.host);
        if constexpr (requires { data.prepare(); })
            if (in_flight == 1) data.prepare();
        const index_t count = all.host.count;
        goal.add(over.counts(count) ? sums : of_others, y, samples_of(all, over.outputs_of(count)));
    };
    for (bool more = true; more;) {
        batches.clear();
        std::vector<index_t> samples;
        while (more && static_cast<int>(batches.size()) < in_flight) {
            auto next = data.next();
            more = next.has_value();
            if (!more) break;
            auto& b = batches.emplace_back(std::move(*next));
            if (b.host.count == 0) {
                batches.pop_back();
                continue;
            }
            samples.push_back(b.host.count);
        }
        if (batches.empty()) continue;
        const index_t positions = memory ? batches.front().there.x.extent(1) : 0;
        model.predict(samples, output, input);
        if (memory) memory->advance(positions);
    }
    return sums;
}

}  // namespace cairn
