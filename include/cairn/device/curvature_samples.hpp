#pragma once
// What the weight gradient of a layer is a sum over: dW = Σ g aᵀ over rows a of its input and rows g of the gradient of
// its output.
// Layers announce these pairs during backward; second-order methods estimate curvature from them.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/host_device.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <cstdint>

namespace cairn {

/// What the rows of a layer are.
enum class rows_kind {
    linear,       // x holds the rows a
    convolution,  // rows a are the patches of x; with groups each has its own part of them
    lookup,       // row a is 1 at ids[row] and 0 elsewhere; the weight is stored (in, out)
    norm  // y = scale · x̂ + shift, of `in` channels: x and dy hold each example's gradient of scale and of shift
};

/// The rows of one layer in one micro-batch. Pointers hold as long as the call that hands them over.
template <class T>
struct curvature_samples {
    rows_kind kind = rows_kind::linear;
    int weight = -1, bias = -1;         // parameter::id; −1: there is none
    index_t examples = 0;               // of this micro-batch
    index_t positions = 1;              // rows of each example: they share the weight
    index_t in = 0, out = 0;            // length of a and of g
    const T* x = nullptr;               // (examples · positions, in); of a convolution the images
    const T* dy = nullptr;              // (examples · positions, out)
    const std::int32_t* ids = nullptr;  // (examples · positions), of a lookup
    conv_geometry conv{};               // of a convolution
};

/// Which mean and deviation normalise an element: its channel's (batch normalisation) or its row's (layer
/// normalisation).
enum class normalised_by { channel, row };

/// Of y = scale · x̂ + shift: each example's gradient of scale and of shift, both (examples, channels).
template <class T>
curvature_samples<T> norm_samples(int scale, int shift, index_t examples, index_t channels, const T* scales,
                                  const T* shifts) {
    return {.kind = rows_kind::norm,
            .weight = scale,
            .bias = shift,
            .examples = examples,
            .in = channels,
            .out = channels,
            .x = scales,
            .dy = shifts};
}

/// One of every `stride` indices, and how many these are.
struct strided_indices {
    index_t first = 0, step = 1, count = 1;
    CAIRN_HD index_t operator[](index_t i) const { return first + i * step; }
};

/// Rows that are to be copied together: of chosen examples and positions, or one of each example, the sum over its
/// positions times `scale`.
template <class T>
struct strided_samples {
    const T* x = nullptr;
    index_t width = 0, stride = 0;  // of rows that lie in memory: row r begins at x + r · stride
    bool patches =
        // rows are a convolution's patches, (kernel points, channels of a group), x at the group's first channel
        false;
    conv_geometry conv{};              // of patches
    index_t positions = 1;             // of each example
    strided_indices examples{}, at{};  // chosen ones
    bool join = false;
    double scale = 1;

    /// Rows of each chosen example.
    CAIRN_HD index_t rows_each() const { return join ? 1 : at.count; }
};

/// Told the rows of each layer whose weight it wants, in backward.
struct curvature_listener {
    virtual ~curvature_listener() = default;
    virtual bool wants(int weight) const = 0;
    /// Whether scale and shift of normalisation are wanted at all: their rows cost a pass over the activations.
    virtual bool wants_norm_layers() const { return true; }
    virtual void take(const curvature_samples<float>&) { fail("curvature: no listener for rows of float"); }
    virtual void take(const curvature_samples<bfloat16>&) { fail("curvature: no listener for rows of bfloat16"); }
    virtual void take(const curvature_samples<float16>&) { fail("curvature: no listener for rows of float16"); }
    virtual void take(const curvature_samples<double>&) { fail("curvature: no listener for rows of double"); }
};

}  // namespace cairn
