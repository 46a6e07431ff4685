#pragma once
// How an array is cut over ranks.

#include <cairn/core/shape.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace cairn {

/// Elements [begin, begin + count) of an array.
struct range {
    index_t begin = 0;
    index_t count = 0;
    index_t end() const { return begin + count; }
};

/// The share of one of `parts` ranks in `total` elements. Shares differ by at most one element, the first ones are
/// larger.
constexpr range shard_of(index_t total, int parts, int which) {
    const index_t small = total / parts, larger = total % parts;
    return {which * small + std::min<index_t>(which, larger), small + (which < larger ? 1 : 0)};
}

/// All shares.
inline std::vector<range> shards_of(index_t total, int parts) {
    std::vector<range> all;
    for (int r = 0; r < parts; ++r) all.push_back(shard_of(total, parts, r));
    return all;
}

template <class T>
std::span<T> subspan(std::span<T> all, range s) {
    return all.subspan(static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.count));
}

}  // namespace cairn
