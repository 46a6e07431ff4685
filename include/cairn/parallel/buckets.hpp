#pragma once
// Gradients are reduced in buckets: spans of the arena that are large enough to be worth a message and small enough
// that the first leaves while backward still computes the rest (Li et al., VLDB 2020, "PyTorch Distributed").
//   arena     [ p0 | p1 | p2 | p3 | p4 | p5 ]
//   buckets        [ 2    |    1    |   0   ]     numbered as backward fills them: from the last parameters to the
//                                                 first

#include <cairn/core/arena.hpp>

#include <vector>

namespace cairn {

/// Elements [begin, end) of the arena, which hold parameters [first, last) and the gaps behind them.
struct bucket {
    index_t begin = 0, end = 0;
    int first = 0, last = 0;
    index_t size() const { return end - begin; }
};

/// Cuts an arena into buckets of at least `bytes` (except the last), whole parameters each, in the order of backward.
/// The first one is closed at `first_bytes`: it starts the traffic early.
template <class T, Device D>
std::vector<bucket> make_buckets(arena<T, D>& weights, index_t bytes, index_t first_bytes = index_t{1} << 20) {
    require(bytes > 0 && first_bytes > 0, "buckets: ", bytes, " and ", first_bytes, " bytes; both must be positive");
    const auto& list = weights.parameters();
    std::vector<bucket> all;
    index_t end = weights.values().size();
    int last = static_cast<int>(list.size());
    for (int i = last; i-- > 0;) {
        const index_t begin = i == 0 ? 0 : list[static_cast<std::size_t>(i)].p->value.data() - weights.values().data();
        const index_t held = (end - begin) * static_cast<index_t>(sizeof(T));
        if (held < (all.empty() ? std::min(first_bytes, bytes) : bytes) && i > 0) continue;
        all.push_back({begin, end, i, last});
        end = begin;
        last = i;
    }
    return all;
}

}  // namespace cairn
