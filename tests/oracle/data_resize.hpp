#pragma once
// Resampling by the triangle filter, straight from its definition: a weighted mean over all source pixels in the box,
// in double.

#include <cairn/data/image.hpp>

#include <algorithm>
#include <cmath>
#include <vector>

namespace oracle {

/// Values 0 … 255 of the part `box` of `in` at height × width.
inline std::vector<double> resize(const cairn::image& in, cairn::pixel_box box, cairn::index_t height,
                                  cairn::index_t width, bool mirrored = false) {
    const auto weight = [](cairn::index_t source, double begin, double extent, cairn::index_t out, cairn::index_t n) {
        const double scale = extent / static_cast<double>(n), support = std::max(scale, 1.0);
        const double centre = begin + (static_cast<double>(out) + 0.5) * scale;
        const bool inside =
            static_cast<double>(source) + 1 > begin + 1e-6 && static_cast<double>(source) < begin + extent - 1e-6;
        if (!inside) return 0.0;
        return std::max(0.0, 1 - std::abs(static_cast<double>(source) + 0.5 - centre) / support);
    };
    std::vector<double> result;
    for (cairn::index_t y = 0; y < height; ++y)
        for (cairn::index_t x = 0; x < width; ++x)
            for (cairn::index_t c = 0; c < in.channels; ++c) {
                double sum = 0, total = 0;
                for (cairn::index_t v = 0; v < in.height; ++v)
                    for (cairn::index_t u = 0; u < in.width; ++u) {
                        const double w = weight(v, box.top, box.height, y, height) *
                                         weight(u, box.left, box.width, mirrored ? width - 1 - x : x, width);
                        sum += w * in.row(v)[u * in.channels + c];
                        total += w;
                    }
                result.push_back(sum / total);
            }
    return result;
}

}  // namespace oracle
