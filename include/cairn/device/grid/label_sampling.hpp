#pragma once
// Labels drawn from a model's predictions, on a grid device: the draws of device/cpu/label_sampling.hpp.
// Nothing waits.

#include <cairn/core/random.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/label_sampling.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

namespace grid {

/// Row r.
struct sample_classes_kernel {
    index_t classes;
    const float* y;
    random_stream random;
    std::int32_t* labels;
    index_t first;
    CAIRN_HD void operator()(index_t r) const {
        const double uniform = random.uniform(static_cast<std::uint64_t>(first + r));
        labels[r] = static_cast<std::int32_t>(sampled_class(y + r * classes, classes, uniform));
    }
};

struct sample_normals_kernel {
    float scale;
    random_stream random;
    float* x;
    index_t first;
    CAIRN_HD void operator()(index_t i) const {
        x[i] = scale * static_cast<float>(random.normal(static_cast<std::uint64_t>(first + i)));
    }
};

struct sample_pixels_kernel {
    const float* y;
    random_stream random;
    float* x;
    index_t first;
    CAIRN_HD void operator()(index_t i) const {
        x[i] = random.uniform(static_cast<std::uint64_t>(first + i)) < 1 / (1 + std::exp(-static_cast<double>(y[i])))
                   ? 1.0f
                   : 0.0f;
    }
};

}  // namespace grid

/// labels (rows): of row r of y (rows, classes) class k with the probability softmax(y)[r, k], by uniform number
/// first + r of `random`.
template <GridDevice D>
void sample_classes(D d, index_t rows, index_t classes, const float* y, const random_stream& random,
                    std::int32_t* labels, index_t first = 0) {
    grid::for_indices(d, rows, grid::sample_classes_kernel{classes, y, random, labels, first}, 64);
}

/// x[i] = scale · standard normal number first + i of `random`.
template <GridDevice D>
void sample_normals(D d, index_t n, float scale, const random_stream& random, float* x, index_t first = 0) {
    grid::for_indices(d, n, grid::sample_normals_kernel{scale, random, x, first});
}

/// x[i] = 1 with the probability sigmoid(y[i]), else 0, by uniform number first + i of `random`; x may be y.
template <GridDevice D>
void sample_pixels(D d, index_t n, const float* y, const random_stream& random, float* x, index_t first = 0) {
    grid::for_indices(d, n, grid::sample_pixels_kernel{y, random, x, first});
}

}  // namespace cairn
