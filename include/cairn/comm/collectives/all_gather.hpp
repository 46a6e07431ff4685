#pragma once
// All-gather on a ring: every rank has one part of an array, and gets the parts of all. In each of p-1 steps a rank
// passes on to the right what it got from the left in the step before.
//   step s    send part (r - s), receive part (r - s - 1)
// Time (p-1) α + (p-1)/p nβ for equal parts: the fewest bytes that are possible. For buffers on GPUs the vendor
// library's own, if there is one.

#include <cairn/comm/vendor_collectives.hpp>

#include <span>
#include <string_view>
#include <vector>

namespace cairn {

inline constexpr int all_gather_tag = user_tags + 4;

namespace detail {

template <class T>
std::span<T> part_of_rank(std::span<T> data, const std::vector<range>& parts, int which) {
    const int p = static_cast<int>(parts.size());
    return subspan(data, parts[static_cast<std::size_t>((which % p + p) % p)]);
}

}  // namespace detail

/// Part r of `data` comes from rank r. Parts may have any sizes, equal on all ranks. Throws if there is not one for
/// each rank.
template <Communicator C, class T>
void all_gather(C& c, std::span<T> data, const std::vector<range>& parts, std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"all-gather", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    const int p = c.size(), me = c.rank(), left = (me + p - 1) % p, right = (me + 1) % p;
    require(static_cast<int>(parts.size()) == p, "all-gather: ", parts.size(), " parts for ", p, " ranks");
    if (auto* const vendor = vendor_on_gpus(c))
        return vendor->all_gather(std::as_writable_bytes(data), in_bytes(parts, sizeof(T)));
    for (int s = 0; s + 1 < p; ++s)
        sendrecv(c, detail::part_of_rank(data, parts, me - s), right, detail::part_of_rank(data, parts, me - s - 1),
                 left, all_gather_tag);
}

/// Equal parts, to within one element.
template <Communicator C, class T>
void all_gather(C& c, std::span<T> data) {
    all_gather(c, data, shards_of(static_cast<index_t>(data.size()), c.size()));
}

}  // namespace cairn
