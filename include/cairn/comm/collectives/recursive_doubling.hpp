#pragma once
// All-reduce by recursive doubling (Thakur, Rabenseifner and Gropp 2005): in round k each rank exchanges its whole
// array with the rank whose number differs in bit k, and both add. Both compute a ∘ b with the data of the lower rank
// first: so all ranks have the same bits, also where an operation is not commutative in its last bit (the sign of zero
// in a maximum, NaN).
// Where p is not a power of two, the first 2 (p - 2^m) ranks pair up: the odd one hands its data to the even one
// before, and gets the result after.
// Time lg p (α + nβ + nγ), two more rounds for such p: the fewest rounds, for small n.

#include <cairn/comm/reduction.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>
#include <utility>

namespace cairn {

inline constexpr int doubling_tag = user_tags + 3;

/// The largest power of two of p ranks, and how those that are over take part: ranks below 2 · extra in pairs, of which
/// the even one goes on.
struct power_of_two_ranks {
    explicit power_of_two_ranks(int p)
        : size(static_cast<int>(std::bit_floor(static_cast<unsigned>(p)))), extra(p - size) {}

    bool hands_over(int rank) const { return rank < 2 * extra && rank % 2 == 1; }
    bool takes_over(int rank) const { return rank < 2 * extra && rank % 2 == 0; }
    int number(int rank) const { return rank < 2 * extra ? rank / 2 : rank - extra; }  // among those that go on
    int rank_of(int number) const { return number < extra ? 2 * number : number + extra; }

    int size, extra;
};

/// data ← reduction over all ranks, in place.
template <Communicator C, class T>
void recursive_doubling_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    [[maybe_unused]] const auto scope =
        enter(c, {"recursive doubling all-reduce", type_name<T>(), static_cast<index_t>(data.size()), -1, label});
    const int me = c.rank();
    const power_of_two_ranks core(c.size());
    if (core.hands_over(me)) {
        send(c, data, me - 1, doubling_tag);
        recv(c, data, me - 1, doubling_tag);
        return;
    }
    tensor<T> room = room_beside<T>(std::as_bytes(data), {static_cast<index_t>(data.size())});
    std::span<T> mine = data, other = room.span();
    if (core.takes_over(me)) {
        recv(c, other, me + 1, doubling_tag);
        reduce_local(c, mine, std::span<const T>(other), r);
    }
    const int number = core.number(me);
    for (int bit = 1; bit < core.size; bit *= 2) {
        const int peer = core.rank_of(number ^ bit);
        sendrecv(c, mine, peer, other, peer, doubling_tag);
        if (peer < me) std::swap(mine, other);
        reduce_local(c, mine, std::span<const T>(other), r);
    }
    if (mine.data() != data.data()) cpu::copy_within(data.data(), mine.data(), static_cast<index_t>(data.size_bytes()));
    if (core.takes_over(me)) send(c, data, me + 1, doubling_tag);
}

}  // namespace cairn
