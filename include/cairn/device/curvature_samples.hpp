#pragma once
// The samples that a layer's weight gradient is a sum over: dW = Σ g aᵀ over rows a of its input and rows g of the
// gradient of its output. Layers announce rows a in forward and rows g in backward; second-order methods estimate
// curvature from them.

#include <cairn/core/bfloat16.hpp>
#include <cairn/core/error.hpp>
#include <cairn/core/float16.hpp>
#include <cairn/core/host_device.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <cstdint>

namespace cairn {

/// The form of a layer's rows.
enum class rows_kind {
    linear,       // x holds the rows a
    convolution,  // rows a are the patches of x; with groups each has its own part of them
    lookup,       // row a is 1 at ids[row] and 0 elsewhere; the weight is stored (in, out)
    norm,  // y = scale · x̂ + shift, of `in` channels: x and dy hold each example's gradient of scale and of shift
    norm_output  // the same layer: dy is what x̂ is multiplied with in the gradient of scale; of a normalisation of
                 // rows what x is
};

/// Rows of one layer in one micro-batch: in forward those of its input, in backward those of the gradient of its
/// output; of a norm both, in backward. Pointers hold during the call.
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
    bool in_backward = false;
    bool transposed = false;  // of linear: the weight is stored (in, out)

    curvature_samples input(const T* rows) const {
        curvature_samples s = *this;
        s.x = rows;
        return s;
    }
    curvature_samples output_gradient(const T* rows) const {
        curvature_samples s = *this;
        s.dy = rows;
        s.in_backward = true;
        return s;
    }
};

/// Which mean and deviation normalise an element: its channel's (batch normalisation) or its row's (layer
/// normalisation).
enum class normalised_by { channel, row };

/// One of every `step` indices, and how many these are.
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

/// Observer of the rows of layers. It says first whether it wants those of a weight.
struct curvature_listener {
    virtual ~curvature_listener() = default;
    virtual bool wants(int weight, rows_kind kind) const = 0;
    /// Whether rows of a layer that is cut over ranks are of no use to it: K-FAC's factors are not those of the layer.
    virtual bool needs_whole_layers() const { return true; }
    virtual void take(const curvature_samples<float>&) { fail("curvature: rows of float are not supported"); }
    virtual void take(const curvature_samples<bfloat16>&) { fail("curvature: rows of bfloat16 are not supported"); }
    virtual void take(const curvature_samples<float16>&) { fail("curvature: rows of float16 are not supported"); }
    virtual void take(const curvature_samples<double>&) { fail("curvature: rows of double are not supported"); }
};

/// Every layer with a weight calls it, in forward and in backward. `to` may be null. A frozen weight has no number, and
/// nobody takes its rows.
template <class T>
void announce(curvature_listener* to, const curvature_samples<T>& rows) {
    if (to && rows.weight >= 0 && to->wants(rows.weight, rows.kind)) to->take(rows);
}

}  // namespace cairn
