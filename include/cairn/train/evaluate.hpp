#pragma once
// One pass of a model over data, in evaluation mode.

#include <cairn/nn/cast.hpp>
#include <cairn/train/model_stages.hpp>
#include <cairn/train/objective.hpp>

#include <utility>
#include <vector>

namespace cairn {

/// Sums over this rank's part of one epoch of `data`, a prefetcher or another loader. The ranks of a pipeline have the
/// same part; the last one has the sums, the others have none. `in_flight`: batches that are on their way through a
/// pipeline together.
template <class T, Device D, class Loader>
evaluation evaluate(model_stages<D, T>& model, const objective& goal, Loader& data, int in_flight = 1) {
    evaluation sums;
    const pass_context p{.mode = mode::evaluate};
    std::vector<device_batch<D>> batches;
    const auto input = [&](int m) {
        return stage_input<T, D>{cast<T>(batches[static_cast<std::size_t>(m)].there.x.share()), p};
    };
    const auto output = [&](int m, tensor<T, D> of_model) {
        const tensor<float, D> y = cast<float>(std::move(of_model));
        if constexpr (requires { data.prepare(); })
            if (in_flight == 1) data.prepare();
        const batch& b = batches[static_cast<std::size_t>(m)].host;
        if constexpr (std::same_as<D, cpu>)
            goal.add(sums, y, b);
        else
            goal.add(sums, y.on_host(), b);
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
            if (b.host.x.empty() && goal.kind() == objective_kind::reconstruction) b.host.x = b.there.x.on_host();
            samples.push_back(b.host.count);
        }
        if (!batches.empty()) model.predict(samples, output, input);
    }
    return sums;
}

}  // namespace cairn
