#pragma once
// Where the numbers of a weight's gradient lie, and of its bias's, seen as one matrix: what K-FAC multiplies by its
// factors.

#include <cairn/core/shape.hpp>

namespace cairn {

/// A matrix (rows, in), row-major: weights (rows, width), and where there is a bias its numbers (rows, in − width)
/// behind them: one a row; or of scale and shift, which are one row, as many as scales.
template <class T>
struct gradient_layout {
    T* weight = nullptr;
    T* bias = nullptr;
    index_t in = 0, width = 0;
    index_t rows = 0;
    bool transposed = false;  // the weight is stored (width, rows)
};

}  // namespace cairn
