#pragma once
// Common to the kernels of cross-entropy with classes cut over ranks (device/cpu/split_softmax.hpp, device/grid/).

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>
#include <cstdint>

namespace cairn {

/// Sums that make the loss of all rows.
struct split_softmax_sums {
    double *exponentials, *hits, *spreads;  // by row: Σ exp(x − m); x_y − m where y is here; Σ (x − m), or null
};

/// Labels and the weights of their terms.
struct split_softmax_labels {
    const std::int32_t* labels;
    index_t first, classes;  // of this rank, of all
    double smoothing;

    CAIRN_HD double share() const { return smoothing / static_cast<double>(classes); }
    /// Loss of a row.
    CAIRN_HD double loss(double exponentials, double hit, double spread) const {
        return std::log(exponentials) - (1 - smoothing) * hit - share() * spread;
    }
};

}  // namespace cairn
