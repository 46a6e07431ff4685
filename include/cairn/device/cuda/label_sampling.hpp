#pragma once
// Labels that a model draws from what it predicts, on a grid device: the draws of device/cpu/label_sampling.hpp.
// Nothing waits.

#include <cairn/core/random.hpp>
#include <cairn/device/cuda/grid.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

/// A thread a row, in the host's order of sums.
struct sample_classes_kernel {
    index_t rows, classes;
    const float* y;
    random_stream random;
    std::int32_t* labels;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t r = b.block() * b.threads() + b.thread(); r < rows; r += stride) {
            const float* const row = y + r * classes;
            float largest = row[0];
            for (index_t k = 1; k < classes; ++k) largest = largest < row[k] ? row[k] : largest;
            const double most = static_cast<double>(largest);
            double total = 0;
            for (index_t k = 0; k < classes; ++k) total += std::exp(static_cast<double>(row[k]) - most);
            double left = random.uniform(static_cast<std::uint64_t>(r)) * total;
            index_t label = 0;
            for (; label + 1 < classes; ++label)
                if ((left -= std::exp(static_cast<double>(row[label]) - most)) < 0) break;
            labels[r] = static_cast<std::int32_t>(label);
        }
    }
};

struct sample_normals_kernel {
    index_t n;
    float scale;
    random_stream random;
    float* x;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(i)));
    }
};

struct sample_pixels_kernel {
    index_t n;
    const float* y;
    random_stream random;
    float* x;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t stride = b.blocks() * b.threads();
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            x[i] = random.uniform(static_cast<std::uint64_t>(i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])))
                       ? 1.0f
                       : 0.0f;
    }
};

}  // namespace grid

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number r of
/// `random`.
template <GridDevice D>
void sample_classes(D, index_t rows, index_t classes, const float* y, const random_stream& random,
                    std::int32_t* labels) {
    if (rows > 0)
        D::launch({.blocks = grid::blocks_for<D>(rows, 64), .threads = 64},
                  grid::sample_classes_kernel{rows, classes, y, random, labels});
}

/// x[i] = scale · standard normal number i of `random`.
template <GridDevice D>
void sample_normals(D, index_t n, float scale, const random_stream& random, float* x) {
    if (n > 0) D::launch({.blocks = grid::blocks_for<D>(n, 256)}, grid::sample_normals_kernel{n, scale, random, x});
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number i of `random`; x may be y.
template <GridDevice D>
void sample_pixels(D, index_t n, const float* y, const random_stream& random, float* x) {
    if (n > 0) D::launch({.blocks = grid::blocks_for<D>(n, 256)}, grid::sample_pixels_kernel{n, y, random, x});
}

}  // namespace cairn
