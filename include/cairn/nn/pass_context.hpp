#pragma once
// The context of one forward and backward of one micro-batch, shared by all layers: the mode, the key of random
// numbers, the requested gradients, observers, and the batch beyond this micro-batch.

#include <cairn/core/random.hpp>
#include <cairn/core/shape.hpp>
#include <cairn/device/curvature_samples.hpp>

#include <cstdint>
#include <span>
#include <string_view>

namespace cairn {

enum class mode { train, evaluate };

/// Key of a layer's random numbers, without the element: seed, step, path in the whole model, sample of the whole
/// batch. Backward draws the numbers of forward again.
struct random_key {
    std::uint64_t seed = 0;
    std::uint32_t step = 0;                  // of the run: the same for all ranks and micro-batches
    const std::uint32_t* step_at = nullptr;  // device address of the step, for captured kernels; null: use `step`
    std::uint64_t path = root_path;          // core/random.hpp
    index_t first_sample = 0;                // of this micro-batch in the batch of all ranks
    index_t samples = 0;                     // of this micro-batch on ranks that share its samples (parallel/spatial/)

    random_stream stream() const { return stream_of_path(seed, path, "forward", step); }
};

/// Observer of gradients: a layer has added its share to these parameters (parameter::id). Called by any_layer
/// (nn/any_layer.hpp) in the order of the additions, never by a layer, so that reduction overlaps the rest of backward.
struct gradient_listener {
    virtual ~gradient_listener() = default;
    virtual void added(std::span<const int> parameters) = 0;
};

/// Processes that hold parts of one batch, for layers whose result depends on the whole batch.
struct batch_group {
    virtual ~batch_group() = default;
    virtual int size() const = 0;
    /// all[r · mine.size() …] = the values of process r, the same bits everywhere. Every process calls it alike.
    virtual void gather(std::span<const double> mine, std::span<double> all) = 0;
};

/// What layers remember of the segment before (nn/stream_memory.hpp).
struct segment_memory {
    virtual ~segment_memory() = default;
};

/// One forward and backward of one micro-batch. Null pointers switch their part off.
struct pass_context {
    cairn::mode mode = cairn::mode::train;
    random_key random;
    bool repeated = false;        // not the first forward of this micro-batch: running statistics stay as they are
    bool input_gradient = true;   // false: dx of this layer is not needed, backward_input may return an empty tensor
    bool weight_gradient = true;  // false: parameters' gradients are not needed, layers may leave them as they are
    gradient_listener* listener = nullptr;    // in the last micro-batch of a step
    curvature_listener* curvature = nullptr;  // in steps that take statistics (device/curvature_samples.hpp)
    batch_group* group = nullptr;             // null: the micro-batch is the whole batch
    const std::int32_t* lengths = nullptr;    // (batch), on the device, until backward: valid positions; null: all
    segment_memory* memory = nullptr;         // of streams; null: samples do not continue earlier ones

    bool training() const { return mode == cairn::mode::train; }

    /// The context of the part of a container that its parameters' paths call `name`; empty: they do not name it.
    pass_context child(std::string_view name) const {
        pass_context p = *this;
        if (!name.empty()) p.random.path = child_path(random.path, name);
        return p;
    }
};

}  // namespace cairn
