#pragma once
// Labels that a model draws from what it predicts, on a grid device: the draws of device/cpu/drawn.hpp. Nothing waits.

#include <cairn/core/random.hpp>
#include <cairn/device/cuda/grid.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

/// A thread a row, in the host's order of sums.
struct drawn_classes_body {
    index rows, classes;
    const float* y;
    random_stream random;
    std::int32_t* labels;
    index first;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index stride = b.blocks() * b.threads();
        for (index r = b.block() * b.threads() + b.thread(); r < rows; r += stride) {
            const float* const row = y + r * classes;
            float largest = row[0];
            for (index k = 1; k < classes; ++k) largest = largest < row[k] ? row[k] : largest;
            const double most = static_cast<double>(largest);
            double total = 0;
            for (index k = 0; k < classes; ++k) total += std::exp(static_cast<double>(row[k]) - most);
            double left = random.uniform(static_cast<std::uint64_t>(first + r)) * total;
            index label = 0;
            for (; label + 1 < classes; ++label)
                if ((left -= std::exp(static_cast<double>(row[label]) - most)) < 0) break;
            labels[r] = static_cast<std::int32_t>(label);
        }
    }
};

struct drawn_normals_body {
    index n;
    float scale;
    random_stream random;
    float* x;
    index first;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index stride = b.blocks() * b.threads();
        for (index i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(first + i)));
    }
};

struct drawn_pixels_body {
    index n;
    const float* y;
    random_stream random;
    float* x;
    index first;
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index stride = b.blocks() * b.threads();
        for (index i = b.block() * b.threads() + b.thread(); i < n; i += stride)
            x[i] =
                random.uniform(static_cast<std::uint64_t>(first + i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])))
                    ? 1.0f
                    : 0.0f;
    }
};

}  // namespace grid

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number first + r of `random`.
template <GridDevice D>
void drawn_classes(D, index rows, index classes, const float* y, const random_stream& random, std::int32_t* labels,
                   index first = 0) {
    if (rows > 0)
        D::launch({.blocks = grid::blocks_for<D>(rows, 64), .threads = 64},
                  grid::drawn_classes_body{rows, classes, y, random, labels, first});
}

/// x[i] = scale · standard normal number first + i of `random`.
template <GridDevice D>
void drawn_normals(D, index n, float scale, const random_stream& random, float* x, index first = 0) {
    if (n > 0) D::launch({.blocks = grid::blocks_for<D>(n, 256)}, grid::drawn_normals_body{n, scale, random, x, first});
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number first + i of `random`; x may be y.
template <GridDevice D>
void drawn_pixels(D, index n, const float* y, const random_stream& random, float* x, index first = 0) {
    if (n > 0) D::launch({.blocks = grid::blocks_for<D>(n, 256)}, grid::drawn_pixels_body{n, y, random, x, first});
}

}  // namespace cairn
