#pragma once
// Lab 6, task 5: ZeRO stage 3. Of the parameters too a rank keeps its part alone, and gathers a layer when it needs it.
//
// Each layer is cut by itself: part r of layer l is part r of parts_of(layers[l], p). A rank keeps its parts of
// layer 0, layer 1, … one behind the other, in `parameters`, `gradients`, `m` and `v` alike.

#include "adam.hpp"
#include "rank_state.hpp"

#include <algorithm>
#include <span>
#include <stdexcept>
#include <vector>

namespace student {

/// Of layer `layer`, the part that rank `rank` of p keeps: where it begins in the rank's arrays, and how many numbers
/// it has. For layer = layers.size(): where all layers end, and 0.
inline cairn::range place_of(const std::vector<std::size_t>& layers, std::size_t layer, int p, int rank) {
    (void)layers, (void)layer, (void)p, (void)rank;
    throw std::logic_error("task 5: place_of is not written yet");
}

/// What rank `rank` of p keeps before the first step. `initial`: the parameters of all layers, one layer behind the
/// other, whole.
inline rank_state zero3_start(const std::vector<std::size_t>& layers, std::span<const float> initial, int p, int rank) {
    (void)layers, (void)initial, (void)p, (void)rank;
    throw std::logic_error("task 5: zero3_start is not written yet");
}

/// All parameters of one layer, on every rank: one all-gather. `mine` stays as it is.
template <class C>
std::vector<float> zero3_gather(C& c, const rank_state& mine, const std::vector<std::size_t>& layers,
                                std::size_t layer) {
    (void)c, (void)mine, (void)layers, (void)layer;
    throw std::logic_error("task 5: zero3_gather is not written yet");
}

/// After the backward of one layer for a micro-batch: one reduce-scatter of the layer's gradient; this rank's part of
/// the sum is added to what it keeps.
template <class C>
void zero3_reduce(C& c, rank_state& mine, const std::vector<std::size_t>& layers, std::size_t layer,
                  std::span<const float> gradient) {
    (void)c, (void)mine, (void)layers, (void)layer, (void)gradient;
    throw std::logic_error("task 5: zero3_reduce is not written yet");
}

/// One step of Adam with the mean gradient over all ranks and their `micro_batches` micro-batches each. Sends nothing.
/// Afterwards the gradients are 0.
template <class C>
void zero3_step(C& c, rank_state& mine, const adam_settings& settings, int micro_batches) {
    (void)c, (void)mine, (void)settings, (void)micro_batches;
    throw std::logic_error("task 5: zero3_step is not written yet");
}

/// What a rank does with a layer. `gather` begins the all-gather, and takes the room of the whole layer; `release`
/// gives that room back; `reduce` reduce-scatters the layer's gradient.
enum class action : char { gather = 'g', forward = 'f', backward = 'b', reduce = 's', release = 'r' };

struct event {
    action what = action::gather;
    int layer = 0;

    bool operator==(const event&) const = default;
};

/// One micro-batch, forward and backward, through `layers` ≥ 1 layers, in order, such that
///   forwards go from layer 0 to the last, then backwards from the last to layer 0, each once;
///   a layer is gathered from before it computes until after that; in the end no layer is;
///   at no time more than two layers are gathered;
///   each gather overlaps with a computation: between a gather and the first computation that uses its data, there
///   is another computation (not for the very first gather, which has nothing to overlap with);
///   each layer is gathered twice, the last layer once: it stays from its forward to its backward;
///   each layer's reduce comes right after its backward.
inline std::vector<event> zero3_plan(int layers) {
    (void)layers;
    throw std::logic_error("task 5: zero3_plan is not written yet");
}

}  // namespace student
