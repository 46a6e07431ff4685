#pragma once
// All-reduce on a ring (Patarasuk and Yuan 2009): the array is cut into p parts. In p-1 steps each rank passes on the
// part that it has just added to, and ends with one part complete; in p-1 more steps the complete parts go round.
//   reduce-scatter, step s   send part (r - s), add what comes from the left to part (r - s - 1); rank r ends with
//                            part r + 1
//   all-gather, step s       send part (r + 1 - s), receive part (r - s)
// Time 2 (p-1) α + 2 (p-1)/p nβ + (p-1)/p nγ: the fewest bytes possible, for any p; many rounds, so for large n.

#include <cairn/comm/collectives/exchange.hpp>

#include <span>
#include <string_view>

namespace cairn {

inline constexpr int ring_tag = user_tags + 2;

namespace detail {

template <Communicator C, class T>
std::span<T> ring_part(const C& c, std::span<T> data, int which) {
    const int p = c.size();
    return subspan(data, shard_of(static_cast<index_t>(data.size()), p, (which % p + p) % p));
}

}  // namespace detail

/// Part (rank + 1) mod p of `data` becomes the reduction over all ranks; the other parts hold partial results
/// afterwards.
template <Communicator C, class T>
void ring_reduce_scatter(C& c, std::span<T> data, reduction r = reduction::sum) {
    const int p = c.size(), me = c.rank(), left = (me + p - 1) % p, right = (me + 1) % p;
    segment_room<T> room(data, shard_of(static_cast<index_t>(data.size()), p, 0).count);
    for (int s = 0; s + 1 < p; ++s)
        exchange_and_combine(c, detail::ring_part(c, data, me - s), right, detail::ring_part(c, data, me - s - 1), left,
                             ring_tag, r, room);
}

/// Every rank has part (rank + 1) mod p; afterwards all have all.
template <Communicator C, class T>
void ring_all_gather(C& c, std::span<T> data) {
    const int p = c.size(), me = c.rank(), left = (me + p - 1) % p, right = (me + 1) % p;
    for (int s = 0; s + 1 < p; ++s)
        sendrecv(c, detail::ring_part(c, data, me + 1 - s), right, detail::ring_part(c, data, me - s), left, ring_tag);
}

/// data ← reduction over all ranks, in place.
template <Communicator C, class T>
void ring_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"ring all-reduce", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    ring_reduce_scatter(c, data, r);
    ring_all_gather(c, data);
}

}  // namespace cairn
