#pragma once
// Labels drawn from a model's predictions, by counter: the same draws on every device and number of threads
// (objectives/objective.hpp), and, as `first` counts what the whole batch has before, on every number of ranks and
// micro-batches.
// device/grid/label_sampling.hpp has the same names. Tested against plain loops in
// tests/device/cuda/label_sampling_laws.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/label_sampling.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number
/// first + r of `random`.
inline void sample_classes(cpu, index_t rows, index_t classes, const float* y, const random_stream& random,
                           std::int32_t* labels, index_t first = 0) {
    const double n = static_cast<double>(rows) * static_cast<double>(classes);
    const kernel_call call("sample classes", "f32", 3 * n, 4 * n + 4 * static_cast<double>(rows), {rows, classes});
    if (on_phantom_rank()) return;
    for (index_t r = 0; r < rows; ++r) {
        const double uniform = random.uniform(static_cast<std::uint64_t>(first + r));
        labels[r] = static_cast<std::int32_t>(sampled_class(y + r * classes, classes, uniform));
    }
}

/// x[i] = scale · standard normal number first + i of `random`.
inline void sample_normals(cpu, index_t n, float scale, const random_stream& random, float* x, index_t first = 0) {
    const kernel_call call("sample normals", "f32", static_cast<double>(n), 4 * static_cast<double>(n), {n});
    parallel_for(n, 4096, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(first + i)));
    });
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number first + i of `random`; x may be y.
inline void sample_pixels(cpu, index_t n, const float* y, const random_stream& random, float* x, index_t first = 0) {
    const kernel_call call("sample pixels", "f32", 4 * static_cast<double>(n), 8 * static_cast<double>(n), {n});
    parallel_for(n, 4096, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i)
            x[i] =
                random.uniform(static_cast<std::uint64_t>(first + i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])));
    });
}

}  // namespace cairn
