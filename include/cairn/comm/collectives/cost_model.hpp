#pragma once
// Seconds of an all-reduce of n bytes on p ranks, from what one exchange costs: a message of m bytes to one rank while
// one of m bytes comes from another takes α + mβ, and adding what came mγ. No machine has one α and one β (eager
// messages, caches, copies by the kernel), so they are kept as measured points, with straight lines between: t(m), and
// g(m) for adding.
//
//   ring                 2(p−1)α + 2((p−1)/p) nβ + ((p−1)/p) nγ             (p−1) (2 t(n/p) + g(n/p))
//   recursive doubling   lg p (α + nβ + nγ)                                 ⌊lg p⌋ (t(n) + g(n))           *
//   halving–doubling     2 lg p α + 2((p−1)/p) nβ + ((p−1)/p) nγ            Σ 2 t(n/2^k) + g(n/2^k)         *
//   pipelined tree       ≈ 2(lg p α + nβ) + nγ                              (S + 2d) w t(s) + S min(w, 2) g(s)
//   hierarchical         reduce-scatter inside (n) + all-reduce between (n/g) + all-gather inside (n)
//   * p not a power of two: and t(n) + g(n) before, t(n) after. Tree: S segments of s bytes, depth d, w exchanges a
//     segment at the busiest rank (children and parent).
// (Thakur, Rabenseifner and Gropp 2005; Hockney 1994 for α and β.)

#include <cairn/comm/collectives/algorithms.hpp>
#include <cairn/comm/collectives/tree.hpp>
#include <cairn/core/link_model.hpp>

#include <algorithm>
#include <bit>
#include <cmath>

namespace cairn {

/// Seconds of an all-reduce of n bytes on p ranks. `vendor` is predicted as the better of ring and recursive doubling,
/// which is what a good library does. Hierarchical: all ranks on one node (then it is the ring).
inline double all_reduce_seconds(const link_model& link, all_reduce_algorithm algorithm, double n, int p) {
    if (p <= 1 || n <= 0) return 0;
    const auto t = [&](double m) { return link.exchange(m); };
    const auto g = [&](double m) { return link.reduce(m); };
    const int rounds = static_cast<int>(std::bit_width(static_cast<unsigned>(p))) - 1;  // ⌊lg p⌋
    const double handing_over = std::has_single_bit(static_cast<unsigned>(p)) ? 0 : 2 * t(n) + g(n);
    switch (algorithm) {
        using enum all_reduce_algorithm;
        case recursive_doubling:
            return rounds * (t(n) + g(n)) + handing_over;
        case halving_doubling: {
            double sum = handing_over;
            for (int k = 1; k <= rounds; ++k) sum += 2 * t(std::ldexp(n, -k)) + g(std::ldexp(n, -k));
            return sum;
        }
        case tree: {
            const double s = std::min(n, static_cast<double>(tree_segment)), segments = std::ceil(n / s);
            const int busiest = p == 2 ? 1 : p <= 4 ? 2 : 3;
            return (segments + 2 * rounds) * busiest * t(s) + segments * std::min(busiest, 2) * g(s);
        }
        case automatic:
        case vendor:
            return std::min(all_reduce_seconds(link, ring, n, p), all_reduce_seconds(link, recursive_doubling, n, p));
        case ring:
        case hierarchical:
            return (p - 1) * (2 * t(n / p) + g(n / p));
    }
    return 0;
}

}  // namespace cairn
