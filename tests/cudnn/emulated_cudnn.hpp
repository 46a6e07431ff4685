#pragma once
// cuDNN's graph interface, as device/cuda/cudnn.hpp calls it, on the host: descriptors with attributes, graphs of
// pointwise operations, reductions, products and transpositions, which plain loops interpret in the streams of the
// emulated CUDA. Refused, as by cuDNN: what is finalised without what it needs, changed after that, or read before it
// was made; a plan that is not told where its tensors are, or at addresses that are no multiples of their alignment.

#include <cudnn.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace emulated {

/// An engine that cuDNN's heuristic suggests, for every graph.
struct cudnn_engine {
    std::vector<cudnnBackendNumericalNote_t> notes{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
    bool works = true;  // else its plans cannot be made
    std::int64_t workspace = 256;
};

/// The engines, most promising first; {{}} at the start. A test that sets them sets them back.
std::vector<cudnn_engine>& cudnn_engines();

/// Plans that ran with an engine: index in cudnn_engines().
std::vector<int> cudnn_runs();

/// Result of cudnnGetVersion().
std::atomic<std::size_t>& cudnn_version();

}  // namespace emulated
