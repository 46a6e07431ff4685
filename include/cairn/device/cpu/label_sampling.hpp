#pragma once
// Labels that a model draws from what it predicts, by counter: the same draws on every device and number of threads
// (train/objective.hpp).
// device/cuda/label_sampling.hpp has the same names. Tested against plain loops in
// tests/device/cuda/label_sampling_laws.hpp.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace cairn {

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number r of
/// `random`.
inline void sample_classes(cpu, index_t rows, index_t classes, const float* y, const random_stream& random,
                           std::int32_t* labels) {
    for (index_t r = 0; r < rows; ++r) {
        const float* const row = y + r * classes;
        const double most = *std::max_element(row, row + classes);
        double total = 0;
        for (index_t k = 0; k < classes; ++k) total += std::exp(static_cast<double>(row[k]) - most);
        double left = random.uniform(static_cast<std::uint64_t>(r)) * total;
        index_t label = 0;
        for (; label + 1 < classes; ++label)
            if ((left -= std::exp(static_cast<double>(row[label]) - most)) < 0) break;
        labels[r] = static_cast<std::int32_t>(label);
    }
}

/// x[i] = scale · standard normal number i of `random`.
inline void sample_normals(cpu, index_t n, float scale, const random_stream& random, float* x) {
    parallel_for(n, 4096, [&](index_t first, index_t last) {
        for (index_t i = first; i < last; ++i)
            x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    });
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number i of `random`; x may be y.
inline void sample_pixels(cpu, index_t n, const float* y, const random_stream& random, float* x) {
    parallel_for(n, 4096, [&](index_t first, index_t last) {
        for (index_t i = first; i < last; ++i)
            x[i] = random.uniform(static_cast<std::uint64_t>(i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])));
    });
}

}  // namespace cairn
