#pragma once
// Where the chunks and parities of N ranks lie, rotated as those of RAID-5 and RAID-6, and by which sums they are
// computed.
//
// Rank r's data are N − m chunks in N slots, m of which are empty. Slot c holds the chunk i for which
// (c − r) mod N = m + i, and parity j of slot c lies on rank c − j:
//        slot 0   slot 1   slot 2   slot 3                       N = 4, m = 1
//   r0   P        chunk 0  chunk 1  chunk 2
//   r1   chunk 2  P        chunk 0  chunk 1
//   r2   chunk 1  chunk 2  P        chunk 0
//   r3   chunk 0  chunk 1  chunk 2  P
// So every rank computes, sends and keeps alike much. A parity is a partial sum that goes round the ring from rank
// c + 1 on (state/partial_sums.hpp), all slots at once, in pieces of 256 KiB.

#include <cairn/state/partial_sums.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace cairn::detail {

inline constexpr std::size_t redundancy_piece = std::size_t{256} << 10;  // bytes of a message

/// The part [begin, begin + bytes) of `all`, as far as it goes.
inline std::span<const std::byte> part_within(std::span<const std::byte> all, std::size_t begin, std::size_t bytes) {
    begin = std::min(begin, all.size());
    return all.subspan(begin, std::min(bytes, all.size() - begin));
}

/// Calls do_piece(begin, bytes) for the pieces of `bytes` bytes.
template <class Action>
void for_each_piece(std::size_t bytes, Action&& do_piece) {
    for (std::size_t begin = 0; begin < bytes; begin += redundancy_piece)
        do_piece(begin, std::min(redundancy_piece, bytes - begin));
}

/// See the top of the file. For data of at most `longest` bytes.
struct parity_layout {
    int n, m;
    std::size_t chunk;  // bytes

    parity_layout(int ranks, int parities, std::size_t longest)
        : n(ranks), m(parities), chunk((longest + width() - 1) / width()) {
        chunk = (chunk + 63) / 64 * 64;
    }
    std::size_t width() const { return static_cast<std::size_t>(n - m); }
    int wrapped(int number) const { return (number % n + n) % n; }
    int chunk_in(int slot, int rank) const { return wrapped(slot - rank) - m; }  // below 0: none
    int rank_of_chunk(int slot, int i) const { return wrapped(slot - m - i); }
    int rank_of_parity(int slot, int j) const { return wrapped(slot - j); }
    std::size_t place(int i) const { return static_cast<std::size_t>(i) * chunk; }  // of a chunk or a parity
};

/// Rank `me`'s steps that leave its parities in `kept`, one after the other.
inline std::vector<sum_step> encoding_steps(const parity_layout& at, int me, std::span<const std::byte> data,
                                            std::span<std::byte> kept) {
    std::vector<sum_step> steps;
    for_each_piece(at.chunk, [&](std::size_t begin, std::size_t bytes) {
        for (int hop = 0; hop < at.n - at.m; ++hop) {  // of the sum for the slot that started `hop` ranks to the left
            const int slot = at.wrapped(me - 1 - hop), i = at.chunk_in(slot, me);
            for (int j = 0; j < at.m; ++j)
                steps.push_back({.bytes = bytes,
                                 .from = hop == 0 ? -1 : at.wrapped(me - 1),
                                 .block = part_within(data, at.place(i) + begin, bytes),
                                 .factor = parity_factor(at.m, j, i),
                                 .to = i == 0 ? at.rank_of_parity(slot, j) : at.wrapped(me + 1)});
        }
        for (int j = 0; j < at.m; ++j)
            steps.push_back({.bytes = bytes,
                             .from = at.rank_of_chunk(at.wrapped(me + j), 0),
                             .result = kept.subspan(at.place(j) + begin, bytes)});
    });
    return steps;
}

/// What is left of a group's parts.
struct parts_left {
    std::vector<bool> data, kept;  // of each rank
};

/// How the lost chunks of a slot follow from what is left. Throws where they do not.
inline std::vector<lost_chunk> solve_slot(const parity_layout& at, int slot, const parts_left& left) {
    std::vector<int> lost;
    for (int i = 0; i < at.n - at.m; ++i)
        if (!left.data[static_cast<std::size_t>(at.rank_of_chunk(slot, i))]) lost.push_back(i);
    std::vector<bool> has_parity;
    for (int j = 0; j < at.m; ++j)
        has_parity.push_back(left.kept[static_cast<std::size_t>(at.rank_of_parity(slot, j))]);
    return solve_lost_chunks(at.n - at.m, lost, has_parity);
}

/// Rank `me`'s steps that rebuild lost data, into `rebuilt` where they are its own: for each lost chunk a sum over the
/// ranks that have a part in it, from the lost rank's right neighbour round the ring.
inline std::vector<sum_step> rebuilding_steps(const parity_layout& at, int me, const parts_left& left,
                                              std::span<const std::byte> data, std::span<const std::byte> kept,
                                              std::span<std::byte> rebuilt) {
    struct summand {
        int rank, chunk, parity;  // -1: none
        std::uint8_t factor;
    };
    struct sum {
        int lost_rank, chunk;
        std::vector<summand> of;
    };
    std::vector<sum_step> steps;
    for (int slot = 0; slot < at.n; ++slot) {
        std::vector<sum> sums;
        for (const lost_chunk& lost : solve_slot(at, slot, left)) {
            sum s{at.rank_of_chunk(slot, lost.chunk), lost.chunk, {}};
            for (int distance = 1; distance < at.n; ++distance) {
                const int rank = at.wrapped(s.lost_rank + distance), i = at.chunk_in(slot, rank),
                          j = at.wrapped(slot - rank);
                const std::uint8_t factor =
                    i >= 0 ? lost.of_chunk[static_cast<std::size_t>(i)] : lost.of_parity[static_cast<std::size_t>(j)];
                if (factor != 0) s.of.push_back({rank, i, i >= 0 ? -1 : j, factor});
            }
            sums.push_back(std::move(s));
        }
        for_each_piece(at.chunk, [&](std::size_t begin, std::size_t bytes) {
            for (int hop = 0; hop < at.n; ++hop)
                for (const sum& s : sums) {
                    const auto length = static_cast<int>(s.of.size());
                    const auto rank_at = [&](int h) {
                        return h < 0 ? -1 : h < length ? s.of[static_cast<std::size_t>(h)].rank : s.lost_rank;
                    };
                    if (hop > length || rank_at(hop) != me) continue;
                    sum_step step{.bytes = bytes, .from = rank_at(hop - 1)};
                    if (hop == length) {
                        step.result = rebuilt.subspan(at.place(s.chunk) + begin, bytes);
                    } else {
                        const summand& mine = s.of[static_cast<std::size_t>(hop)];
                        step.block = mine.chunk >= 0 ? part_within(data, at.place(mine.chunk) + begin, bytes)
                                                     : part_within(kept, at.place(mine.parity) + begin, bytes);
                        step.factor = mine.factor;
                        step.to = rank_at(hop + 1);
                    }
                    steps.push_back(step);
                }
        });
    }
    return steps;
}

/// Steps that copy `data` to rank `to` and fill `copy` from rank `from`; nothing where there are no bytes.
inline std::vector<sum_step> copying_steps(std::span<const std::byte> data, int to, std::span<std::byte> copy,
                                           int from) {
    std::vector<sum_step> steps;
    for_each_piece(std::max(data.size(), copy.size()), [&](std::size_t begin, std::size_t) {
        const std::span<const std::byte> out = part_within(data, begin, redundancy_piece);
        const std::size_t in = part_within(copy, begin, redundancy_piece).size();
        if (!out.empty()) steps.push_back({.bytes = out.size(), .block = out, .to = to});
        if (in > 0) steps.push_back({.bytes = in, .from = from, .result = copy.subspan(begin, in)});
    });
    return steps;
}

}  // namespace cairn::detail
