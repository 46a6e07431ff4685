#pragma once
// Reduce-scatter on a ring: rank r ends with part r of the reduction over all ranks. A part starts at the rank behind
// its owner and goes round once, growing at each rank.
//   step s = 1 … p-1    send part (r - s), add what comes from the left to part (r - s - 1)
// Time (p-1) α + (p-1)/p nβ + (p-1)/p nγ for equal parts. comm/collectives/ring.hpp has it with what follows, for the
// all-reduce.
// For buffers on GPUs the vendor library's own; without one it throws.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/exchange.hpp>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

inline constexpr int reduce_scatter_tag = user_tags + 5;

/// Part `rank` of `data` becomes the reduction; the other parts hold anything afterwards, partial results for instance.
/// Parts may have any sizes, equal on all ranks. Throws if there is not one for each rank.
template <Communicator C, class T>
void reduce_scatter(C& c, std::span<T> data, const std::vector<range>& parts, reduction r = reduction::sum,
                    std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"reduce-scatter", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    const int p = c.size(), me = c.rank(), left = (me + p - 1) % p, right = (me + 1) % p;
    require(static_cast<int>(parts.size()) == p, "reduce-scatter: ", parts.size(), " parts for ", p, " ranks");
    if constexpr (VendorElement<T>)
        if (auto* const vendor = vendor_on_gpus(c)) return vendor->reduce_scatter(data, parts, r);
    index_t largest = 0;
    for (const range& part : parts) largest = std::max(largest, part.count);
    segment_room<T> room(data, largest);
    for (int s = 1; s < p; ++s)
        exchange_and_combine(c, detail::part_of_rank(data, parts, me - s), right,
                             detail::part_of_rank(data, parts, me - s - 1), left, reduce_scatter_tag, r, room);
}

/// Equal parts, to within one element.
template <Communicator C, class T>
void reduce_scatter(C& c, std::span<T> data, reduction r = reduction::sum) {
    reduce_scatter(c, data, shards_of(static_cast<index_t>(data.size()), c.size()), r);
}

}  // namespace cairn
