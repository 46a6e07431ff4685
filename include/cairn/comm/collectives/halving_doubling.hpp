#pragma once
// All-reduce by recursive halving and doubling (Rabenseifner 2004; Thakur, Rabenseifner and Gropp 2005): a
// reduce-scatter in which the part that two ranks exchange halves in each round, then an all-gather in which it
// doubles.
//   halving, bit = q/2 … 1     the pair (r, r xor bit) halves what it has: the one whose bit is 0 keeps and adds the
//                              lower half
//   doubling, bit = 1 … q/2    the same pairs the other way round: each sends what it has
// q is p, or where p is not a power of two, the power of two below; the ranks over it hand their data to a neighbour
// and get the result, see power_of_two_ranks.
// Time 2 lg p α + 2 (p-1)/p nβ + (p-1)/p nγ; other p: (2 ⌊lg p⌋ + 2) α + (2 (p-1)/p + 2) nβ + (1 + (p-1)/p) nγ.
// The ring's bytes in fewer rounds: between recursive doubling's sizes and the ring's.

#include <cairn/comm/collectives/exchange.hpp>
#include <cairn/comm/collectives/recursive_doubling.hpp>

#include <algorithm>
#include <span>
#include <string_view>

namespace cairn {

inline constexpr int halving_tag = user_tags + 7;

/// data ← reduction over all ranks, in place.
template <Communicator C, class T>
void halving_doubling_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    const auto n = static_cast<index_t>(data.size());
    [[maybe_unused]] const auto scope = enter(c, {"halving-doubling all-reduce", type_name<T>(), n, -1, label});
    const int me = c.rank();
    const power_of_two_ranks core(c.size());
    if (core.hands_over(me)) {
        segment_room<T> none(data, 0);
        exchange_and_combine(c, data, me - 1, std::span<T>{}, me - 1, halving_tag, r, none);
        recv(c, data, me - 1, halving_tag);
        return;
    }
    const index_t lower_half = shard_of(n, core.size, std::max(1, core.size / 2) - 1).end();  // the larger one
    segment_room<T> room(data, core.extra ? n : lower_half);
    if (core.takes_over(me)) exchange_and_combine(c, std::span<T>{}, me + 1, data, me + 1, halving_tag, r, room);

    // Parts [first, first + width) of q, as elements.
    const auto parts = [&](int first, int width) {
        const index_t begin = shard_of(n, core.size, first).begin;
        return subspan(data, {begin, shard_of(n, core.size, first + width - 1).end() - begin});
    };
    const int number = core.number(me);
    int first = 0;
    for (int bit = core.size / 2; bit >= 1; bit /= 2) {
        const int peer = core.rank_of(number ^ bit);
        const bool upper = number & bit;
        exchange_and_combine(c, parts(upper ? first : first + bit, bit), peer, parts(upper ? first + bit : first, bit),
                             peer, halving_tag, r, room);
        if (upper) first += bit;
    }
    for (int bit = 1; bit < core.size; bit *= 2) {
        const int peer = core.rank_of(number ^ bit);
        const bool upper = number & bit;
        sendrecv(c, parts(first, bit), peer, parts(upper ? first - bit : first + bit, bit), peer, halving_tag);
        if (upper) first -= bit;
    }
    if (core.takes_over(me)) send(c, data, me + 1, halving_tag);
}

}  // namespace cairn
