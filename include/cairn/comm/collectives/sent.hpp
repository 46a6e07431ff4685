#pragma once
// Messages and bytes that rank r of p sends in a collective, from closed forms. Exact for every rank: n elements are
// cut into parts n_0 … n_{p−1} that differ by one (shards_of), and a rank sends all parts but one round a ring.
//   all-gather            p − 1 messages    n − n_{r+1}
//   reduce-scatter        p − 1             n − n_r
//   ring all-reduce       2(p − 1)          2n − n_{r+1} − n_{r+2}
//   recursive doubling    ⌊lg p⌋            ⌊lg p⌋ n                                                             *
//   halving–doubling      2⌊lg p⌋           n − n_v, halving, and what it has before each doubling               *
//   tree                  (children + 1) S  (children + 1) n; the root n less; S segments of tree_segment bytes
//   * p no power of two: a rank that hands over sends 1 message of n, one that takes over 1 more of n
// Parts are one message: real ranks send long ones in segments of reduce_segment bytes. Tested against counted ones:
// tests/collectives/formulas_test.cpp.

#include <cairn/comm/collectives/algorithms.hpp>
#include <cairn/comm/collectives/recursive_doubling.hpp>
#include <cairn/comm/collectives/tree.hpp>
#include <cairn/comm/traffic.hpp>
#include <cairn/core/range.hpp>

#include <vector>

namespace cairn {

namespace detail {

/// All parts but that of rank `all_but` (mod p) leave, empty ones too where `empty`.
inline sent_messages passed_on(const std::vector<range>& parts, int all_but, index_t element_bytes, bool empty) {
    const int p = static_cast<int>(parts.size());
    sent_messages sum;
    for (int r = 0; r < p; ++r) {
        const index_t count = parts[static_cast<std::size_t>(r)].count;
        if (r != all_but % p && (count > 0 || empty)) sum += {1, count * element_bytes};
    }
    return sum;
}

}  // namespace detail

/// Of rank `rank`, parts of elements.
inline sent_messages all_gather_sends(const std::vector<range>& parts, index_t element_bytes, int rank) {
    return detail::passed_on(parts, rank + 1, element_bytes, true);
}
inline sent_messages reduce_scatter_sends(const std::vector<range>& parts, index_t element_bytes, int rank) {
    return detail::passed_on(parts, rank, element_bytes, false);
}

/// Of rank `rank` of p in an all-reduce of n elements. `automatic` and `vendor` count as the ring, the least bytes
/// possible; `hierarchical` as inside one node, without the making of its groups.
inline sent_messages all_reduce_sends(all_reduce_algorithm algorithm, index_t n, index_t element_bytes, int p,
                                      int rank) {
    if (p <= 1 || n == 0) return {};
    const power_of_two_ranks core(p);
    const sent_messages all{1, n * element_bytes};
    const auto times = [](int k, sent_messages m) { return sent_messages{k * m.messages, k * m.bytes}; };
    const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(core.size))) - 1;
    switch (algorithm) {
        using enum all_reduce_algorithm;
        case recursive_doubling:
            return core.hands_over(rank) ? all : times(rounds + core.takes_over(rank), all);
        case halving_doubling: {
            if (core.hands_over(rank)) return all;
            const std::vector<range> parts = shards_of(n, core.size);
            sent_messages sum = core.takes_over(rank) ? all : sent_messages{};
            const int number = core.number(rank);
            for (int width = 1; width < core.size; width *= 2) {  // parts in this rank's block, and in that beside it
                const auto block = [&](int first) {
                    return parts[static_cast<std::size_t>(first + width - 1)].end() -
                           parts[static_cast<std::size_t>(first)].begin;
                };
                const int mine = number / width * width, other = mine ^ width;
                sum += {block(other) > 0, block(other) * element_bytes};  // halving
                sum += {1, block(mine) * element_bytes};                  // doubling
            }
            return sum;
        }
        case tree: {
            const index_t step = std::max<index_t>(1, tree_segment / element_bytes);
            int peers = rank > 0;
            for (const int child : {2 * rank + 1, 2 * rank + 2}) peers += child < p;
            return times(peers, {(n + step - 1) / step, all.bytes});
        }
        case hierarchical: {
            const std::vector<range> parts = shards_of(n, p);
            sent_messages sum = reduce_scatter_sends(parts, element_bytes, rank);
            return sum += all_gather_sends(parts, element_bytes, rank);
        }
        case automatic:
        case vendor:
        case ring: {
            const std::vector<range> parts = shards_of(n, p);
            sent_messages sum = detail::passed_on(parts, rank + 1, element_bytes, false);
            return sum += detail::passed_on(parts, rank + 2, element_bytes, true);
        }
    }
    return {};
}

}  // namespace cairn
