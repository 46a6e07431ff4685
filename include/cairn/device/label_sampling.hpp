#pragma once
// The draw of one label, in one text for all devices: the same sums in the same order, and so the same labels.

#include <cairn/core/host_device.hpp>
#include <cairn/core/shape.hpp>

#include <cmath>

namespace cairn {

/// Class k with the probability softmax(row)[k], row (classes), by `uniform` in [0, 1).
CAIRN_HD inline index_t sampled_class(const float* row, index_t classes, double uniform) {
    float largest = row[0];
    for (index_t k = 1; k < classes; ++k) largest = largest < row[k] ? row[k] : largest;
    const double most = static_cast<double>(largest);
    double total = 0;
    for (index_t k = 0; k < classes; ++k) total += std::exp(static_cast<double>(row[k]) - most);
    double left = uniform * total;
    index_t label = 0;
    for (; label + 1 < classes; ++label)
        if ((left -= std::exp(static_cast<double>(row[label]) - most)) < 0) break;
    return label;
}

}  // namespace cairn
