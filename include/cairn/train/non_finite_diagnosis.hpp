#pragma once
// Why the loss of a micro-batch is not finite: its samples, a parameter, the first layer whose output is not, or the
// loss itself. Layers run forward again, one by one, with the same pass and so with the same bits.

#include <cairn/core/arena.hpp>
#include <cairn/core/finite.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/nn/cast.hpp>
#include <cairn/nn/sequential.hpp>
#include <cairn/train/step_hook.hpp>

#include <cstdint>
#include <string>
#include <utility>

namespace cairn {

/// Names the step and the first thing to blame. `p`: the pass of these samples in that step; other ranks do not take
/// part.
template <class T, Device D>
std::string why_not_finite(sequential<T, D>& model, const arena<float, D>& weights, const device_batch<D>& samples,
                           pass_context p, std::int64_t step, double loss) {
    const std::string where = concat("step ", step, ": loss is ", loss, "; ");
    const std::string advice =
        concat("; lower the learning rate, warm up, or clip gradients",
               std::same_as<T, float16> ? ", or take train.precision = bf16, which has float's range" : "");
    if (!samples.host.targets.empty() && first_non_finite(samples.host.targets))
        return where + "a target of the batch is not finite (sample data, not training)";
    if (first_non_finite(samples.there.x))
        return where + "the input batch holds a value that is not finite (sample data, not training)";
    for (const auto& [name, parameter] : weights.parameters())
        if (first_non_finite(parameter->value)) return concat(where, "parameter ", name, " is not finite", advice);
    p.repeated = true;
    p.group = nullptr;
    p.curvature = nullptr;
    saved_tensors<T, D> scratch;
    tensor<T, D> x = cast<T>(samples.there.x.share());
    for (int i = 0; i < model.size(); ++i) {
        x = model[i].forward(std::move(x), scratch.child(i), model.context_of(i, p));
        if (first_non_finite(cast<float>(x)))
            return concat(where, "the first layer with a non-finite output is ", model.name(i), " (",
                          model[i].describe(), ')', advice);
    }
    return concat(where, "all layers give finite outputs: the loss itself overflows", advice);
}

/// The same of micro-batch m of a step, on a rank that has the last stage. It names no layer where it would need other
/// ranks to run them: of a pipeline, and where ranks share layers.
template <class T, Device D>
std::string why_not_finite(const training_step<D, T>& now, int m, double loss, bool layers_are_shared) {
    if (!now.model.is_pipeline() && !layers_are_shared)
        return why_not_finite(now.model.stages().front().layers(), now.model.weights(), now.batch[m],
                              now.pass_of(now.batch[m]), now.number + 1, loss);
    return concat("step ", now.number + 1, ": loss is ", loss,
                  " at the end of the model; lower the learning rate, warm up, or clip gradients");
}

}  // namespace cairn
