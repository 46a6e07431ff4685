#pragma once
// How an array is cut over ranks.

#include <cairn/core/shape.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace cairn {

/// Elements [begin, begin + count) of an array.
struct shard {
    index begin = 0;
    index count = 0;
    index end() const { return begin + count; }
};

/// The share of one of `parts` ranks in `total` elements. Shares differ by at most one element, the first ones are larger.
constexpr shard shard_of(index total, int parts, int which) {
    const index small = total / parts, larger = total % parts;
    return {which * small + std::min<index>(which, larger), small + (which < larger ? 1 : 0)};
}

/// All shares.
inline std::vector<shard> shards_of(index total, int parts) {
    std::vector<shard> all;
    for (int r = 0; r < parts; ++r) all.push_back(shard_of(total, parts, r));
    return all;
}

/// Parts of an array, and the pieces of at most `grain` elements that they are cut into: what sums by parts are made of. A part's pieces, and
/// so the bits of its sum, do not depend on the other parts.
struct parts_in_pieces {
    std::vector<shard> pieces;
    std::vector<index> first{0};  // piece of each part, and one past the last

    parts_in_pieces(std::span<const shard> parts, index grain) {
        for (const shard& part : parts) {
            for (index at = part.begin; at < part.end(); at += grain)
                pieces.push_back({at, std::min(grain, part.end() - at)});
            first.push_back(static_cast<index>(pieces.size()));
        }
    }
    index parts() const { return static_cast<index>(first.size()) - 1; }
};

template <class T>
std::span<T> subspan(std::span<T> all, shard s) {
    return all.subspan(static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.count));
}

}  // namespace cairn
