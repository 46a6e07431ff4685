#pragma once
// Labels that a model draws from what it predicts, by counter: the same draws on every device and number of threads (train/task.hpp), and,
// as `first` counts what the whole batch has before, on every number of ranks and micro-batches.
// device/cuda/drawn.hpp has the same names. Tested against plain loops in tests/device/cuda/drawn_laws.hpp.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn {

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number first + r of `random`.
inline void drawn_classes(cpu, index rows, index classes, const float* y, const random_stream& random,
                          std::int32_t* labels, index first = 0) {
    for (index r = 0; r < rows; ++r) {
        const float* const row = y + r * classes;
        const double most = *std::max_element(row, row + classes);
        double total = 0;
        for (index k = 0; k < classes; ++k) total += std::exp(static_cast<double>(row[k]) - most);
        double left = random.uniform(static_cast<std::uint64_t>(first + r)) * total;
        index label = 0;
        for (; label + 1 < classes; ++label)
            if ((left -= std::exp(static_cast<double>(row[label]) - most)) < 0) break;
        labels[r] = static_cast<std::int32_t>(label);
    }
}

/// x[i] = scale · standard normal number first + i of `random`.
inline void drawn_normals(cpu, index n, float scale, const random_stream& random, float* x, index first = 0) {
    parallel_for(n, 4096, [&](index begin, index end) {
        for (index i = begin; i < end; ++i)
            x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(first + i)));
    });
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number first + i of `random`; x may be y.
inline void drawn_pixels(cpu, index n, const float* y, const random_stream& random, float* x, index first = 0) {
    parallel_for(n, 4096, [&](index begin, index end) {
        for (index i = begin; i < end; ++i)
            x[i] =
                random.uniform(static_cast<std::uint64_t>(first + i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])));
    });
}

}  // namespace cairn
