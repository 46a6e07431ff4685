#pragma once
// Sums of parts of very different magnitude by one compressor. Its error is relative to the largest value, or its
// format has a limited range: next to a large part a small one would vanish, or a large one overflow. So each part is
// scaled by a power of two, which is exact, such that the largest possible value of its sum is 2^14 … 2^15: within
// fp16's range, most of which lies below. An error bound relative to the largest value then holds in each part.

#include <cairn/comm/collectives/all_reduce.hpp>
#include <cairn/core/range.hpp>
#include <cairn/device/cpu/reduce.hpp>
#include <cairn/parallel/comm_hook.hpp>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace cairn {

/// Collective. data ← its sum over ranks by `method`; each of `parts` has a scale of its own. Returns false on all
/// ranks, with data as it was, where a value of one is not finite: such values cannot be encoded.
template <Communicator C>
bool scaled_reduction(C& c, comm_hook<C>& method, std::span<float> data, const std::vector<range>& parts,
                      const encode_step& at) {
    constexpr float infinite = std::numeric_limits<float>::infinity();
    std::vector<float> largest;
    for (const range& p : parts) {
        const float here = max_abs(cpu{}, p.count, data.data() + p.begin);
        largest.push_back(std::isfinite(here) ? here : infinite);
    }
    all_reduce(c, std::span<float>(largest), {.op = reduction::max, .label = "largest values of parts"});
    if (std::ranges::find(largest, infinite) != largest.end()) return false;
    std::vector<float> scales;
    for (const float one : largest) {
        int exponent = 0;
        std::frexp(static_cast<double>(one) * c.size(), &exponent);  // the sum is at most 2^exponent
        scales.push_back(std::ldexp(1.0f, std::clamp(15 - exponent, -126, 126)));
    }
    const auto scale = [&](auto by) {
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const float factor = by(scales[i]);
            for (float& x : subspan(data, parts[i])) x *= factor;
        }
    };
    scale([](float s) { return s; });
    method.reduce(c, data, at);
    scale([](float s) { return 1 / s; });
    return true;
}

}  // namespace cairn
