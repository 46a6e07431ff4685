#pragma once
// Collectives over an array that is cut into one range a rank, of any sizes: what sharded optimizers need. A ring, as in
// comm/collectives/ring.hpp, with given cuts.
//   reduce-scatter   p-1 steps: send range (rank - s), add what comes to range (rank - s - 1)      then range `rank` is the sum
//   all-gather       p-1 steps: send range (rank - s), receive range (rank - s - 1)

#include <cairn/comm/reduction.hpp>
#include <cairn/core/arena.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace cairn {

inline constexpr int ranges_tag = user_tags - 1;

template <class T>
std::span<T> span_of(std::span<T> all, const std::vector<arena_range>& ranges, int which, int ranks) {
    const arena_range& r = ranges[static_cast<std::size_t>((which % ranks + ranks) % ranks)];
    return all.subspan(static_cast<std::size_t>(r.begin), static_cast<std::size_t>(r.size()));
}

/// Every rank gets the ranges of the others, range r from rank r. Sends (p-1)/p of the bytes.
template <Communicator C, class T>
void all_gather_ranges(C& c, std::span<T> data, const std::vector<arena_range>& ranges) {
    const auto scope = enter(c, {"ring all-gather of ranges", type_name<T>(), static_cast<index>(data.size())});
    const int p = c.size(), me = c.rank();
    require(static_cast<int>(ranges.size()) == p, "all-gather: ", ranges.size(), " ranges for ", p, " ranks");
    for (int s = 0; s + 1 < p; ++s)
        send_receive(c, span_of(data, ranges, me - s, p), (me + 1) % p, span_of(data, ranges, me - s - 1, p),
                     (me + p - 1) % p, ranges_tag);
}

/// Range `rank` becomes the sum over all ranks; the other ranges hold partial sums afterwards. Sends (p-1)/p of the bytes.
template <Communicator C, class T>
void reduce_scatter_ranges(C& c, std::span<T> data, const std::vector<arena_range>& ranges) {
    const auto scope = enter(c, {"ring reduce-scatter of ranges", type_name<T>(), static_cast<index>(data.size())});
    const int p = c.size(), me = c.rank();
    require(static_cast<int>(ranges.size()) == p, "reduce-scatter: ", ranges.size(), " ranges for ", p, " ranks");
    index largest = 0;
    for (const arena_range& r : ranges) largest = std::max(largest, r.size());
    tensor<T> room({largest}, category::communication);
    for (int s = 1; s < p; ++s) {
        const std::span<T> mine = span_of(data, ranges, me - s - 1, p), got = room.span().first(mine.size());
        send_receive(c, span_of(data, ranges, me - s, p), (me + 1) % p, got, (me + p - 1) % p, ranges_tag);
        combine(c, mine, std::span<const T>(got));
    }
}

}  // namespace cairn
