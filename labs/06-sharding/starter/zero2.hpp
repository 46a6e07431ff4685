#pragma once
// Lab 6, task 4: ZeRO stage 2. As stage 1, but of the gradients too a rank keeps its part alone.

#include "adam.hpp"
#include "rank_state.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// What rank `rank` of p keeps before the first step: the initial parameters, and gradients, m and v of 0 for part
/// `rank` of parts_of(n, p).
inline rank_state zero2_start(std::span<const float> initial, int p, int rank) {
    (void)initial, (void)p, (void)rank;
    throw std::logic_error("task 4: zero2_start is not written yet");
}

/// After the backward of a micro-batch: one reduce-scatter of its gradient over the ranks. This rank's part of the sum
/// is added to the part that it keeps; the rest is forgotten. `gradient` may not be changed, so work on a copy, which
/// nobody counts. (In a library backward makes gradients a bucket at a time, and no rank ever has all n.)
template <class C>
void zero2_accumulate(C& c, rank_state& mine, std::span<const float> gradient) {
    (void)c, (void)mine, (void)gradient;
    throw std::logic_error("task 4: zero2_accumulate is not written yet");
}

/// One step of Adam with the mean gradient over all ranks and their `micro_batches` micro-batches each: the update of
/// this rank's part, one all-gather of the parameters. Afterwards every rank has all new parameters, and its gradients
/// are 0.
template <class C>
void zero2_step(C& c, rank_state& mine, const adam_settings& settings, int micro_batches) {
    (void)c, (void)mine, (void)settings, (void)micro_batches;
    throw std::logic_error("task 4: zero2_step is not written yet");
}

}  // namespace student
