#pragma once
// Lab 6, task 3: ZeRO stage 1. Every rank has all parameters and all gradients, and Adam's m and v for its part alone.

#include "adam.hpp"
#include "rank_state.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// What rank `rank` of p keeps before the first step: the initial parameters, gradients of 0, and m and v of 0 for
/// part `rank` of parts_of(n, p), where n = initial.size().
inline rank_state zero1_start(std::span<const float> initial, int p, int rank) {
    //! solution
    rank_state mine;
    const auto part = static_cast<std::size_t>(parts_of(initial.size(), p)[static_cast<std::size_t>(rank)].count);
    mine.parameters.assign(initial.begin(), initial.end());
    mine.gradients.assign(initial.size(), 0.0f);
    mine.m.assign(part, 0.0f);
    mine.v.assign(part, 0.0f);
    return mine;
    //! starter
    // (void)initial, (void)p, (void)rank;
    // throw std::logic_error("task 3: zero1_start is not written yet");
    //! end
}

/// After the backward of a micro-batch: adds its gradient, of all n parameters, to what this rank has. Sends nothing:
/// `c` is there because stage 2 needs it.
template <class C>
void zero1_accumulate(C& c, rank_state& mine, std::span<const float> gradient) {
    //! solution
    (void)c;
    for (std::size_t i = 0; i < gradient.size(); ++i) mine.gradients[i] += gradient[i];
    //! starter
    // (void)c, (void)mine, (void)gradient;
    // throw std::logic_error("task 3: zero1_accumulate is not written yet");
    //! end
}

/// One step of Adam with the mean gradient over all ranks and their `micro_batches` micro-batches each: one
/// reduce-scatter of the gradients, the update of this rank's part, one all-gather of the parameters. Afterwards every
/// rank has all new parameters, and gradients of 0.
template <class C>
void zero1_step(C& c, rank_state& mine, const adam_settings& settings, int micro_batches) {
    //! solution
    const auto parts = parts_of(mine.parameters.size(), c.size());
    const cairn::range& part = parts[static_cast<std::size_t>(c.rank())];
    const std::span<float> gradients(mine.gradients), parameters(mine.parameters);
    cairn::reduce_scatter(c, gradients, parts);
    const auto here = elements(gradients, part);
    for (float& g : here) g /= static_cast<float>(c.size() * micro_batches);
    adam(settings, ++mine.steps, here, elements(parameters, part), mine.m, mine.v);
    cairn::all_gather(c, parameters, parts);
    std::fill(mine.gradients.begin(), mine.gradients.end(), 0.0f);
    //! starter
    // (void)c, (void)mine, (void)settings, (void)micro_batches;
    // throw std::logic_error("task 3: zero1_step is not written yet");
    //! end
}

}  // namespace student
