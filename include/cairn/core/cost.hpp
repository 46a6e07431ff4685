#pragma once
// Costs of a layer, computed from shapes alone: the input of profiles, recomputation plans, schedules and the
// performance model.

#include <cairn/core/memory.hpp>
#include <cairn/core/sent_messages.hpp>
#include <cairn/core/shape.hpp>

namespace cairn {

/// What a rank sends where ranks share a layer: parts or sums of tensors (parallel/tensor), rows that neighbours need
/// and whole samples (parallel/spatial). Exact for this rank, by the algorithms that are chosen for so many bytes.
struct shared_sends {
    sent_messages tensor, halos, samples;
    shared_sends& operator+=(const shared_sends& other) {
        tensor += other.tensor, halos += other.halos, samples += other.samples;
        return *this;
    }
    shared_sends& operator-=(const shared_sends& other) {
        tensor -= other.tensor, halos -= other.halos, samples -= other.samples;
        return *this;
    }
};

/// Arithmetic and memory traffic of one phase. A multiply-add is 2 flops; bytes are the compulsory ones: each operand
/// read once, each result written once.
struct phase_cost {
    double flops = 0;
    double bytes = 0;
    shared_sends sends = {};
    phase_cost& operator+=(const phase_cost& other) {
        flops += other.flops;
        bytes += other.bytes;
        sends += other.sends;
        return *this;
    }
};

/// Bytes that a block of `bytes` bytes takes from the pool.
inline constexpr index_t block_bytes(index_t bytes) {
    return std::max((bytes + memory_pool::alignment - 1) / memory_pool::alignment, index_t{1}) * memory_pool::alignment;
}

/// Bytes that a tensor of T takes from the pool.
template <class T>
index_t block_bytes(const shape& s) {
    return block_bytes(s.size() * static_cast<index_t>(sizeof(T)));
}

/// Cost of a layer for one input shape.
struct layer_cost {
    phase_cost forward, backward_input, backward_weight;
    index_t parameters = 0;     // trained values
    index_t saved_bytes = 0;    // saved by forward besides input and output, in blocks of the pool
    bool saves_input = false;   // the saved tensors include the layer's input …
    bool saves_output = false;  // … or its output: blocks that the neighbours may hold as well

    // How its tensors share memory, for predictions (stash/plan.hpp):
    bool passes_through = false;         // the output is the input's own block under another shape
    bool in_place_forward = false;       // y overwrites x if x has no other owner
    bool in_place_backward = false;      // dx overwrites dy if dy has no other owner
    bool weight_gradient_first = false;  // backward lets the saved input go before it makes dx
    bool holds_input = false;            // … or holds it while it makes dx, and nothing besides
    bool masks_gradient = false;         // an activation comes last: a skip added before it has another gradient than y

    /// Adds arithmetic, traffic and parameters of a part.
    void add_work(const layer_cost& part) {
        forward += part.forward;
        backward_input += part.backward_input;
        backward_weight += part.backward_weight;
        parameters += part.parameters;
    }
};

}  // namespace cairn
