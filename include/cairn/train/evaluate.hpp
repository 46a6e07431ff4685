#pragma once
// One pass of a model over data, in evaluation mode.

#include <cairn/nn/cast.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/train/objective.hpp>

#include <utility>

namespace cairn {

/// Sums over this rank's part of one epoch of `data`, a prefetcher or another loader.
template <class T, Device D, class Loader>
evaluation evaluate(sequential<T, D>& model, const objective& goal, Loader& data) {
    evaluation sums;
    const pass_context p{.mode = mode::evaluate};
    while (auto next = data.next()) {
        device_batch<D> b(std::move(*next));
        next.reset();
        if (b.host.count == 0) continue;
        if (b.host.x.empty() && goal.kind() == objective_kind::reconstruction) b.host.x = b.there.x.on_host();
        saved_tensors<T, D> nothing;
        const tensor<float, D> y = cast<float>(model.forward(cast<T>(b.there.x.share()), nothing, p));
        if constexpr (requires { data.prepare(); }) data.prepare();
        if constexpr (std::same_as<D, cpu>)
            goal.add(sums, y, b.host);
        else
            goal.add(sums, y.on_host(), b.host);
    }
    return sums;
}

}  // namespace cairn
