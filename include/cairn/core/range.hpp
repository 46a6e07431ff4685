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

/// A part of an array that is in memory; converted from a number: all of it.
struct array_part {
    index_t all = 0;
    range here{};
    array_part(index_t total) : array_part(total, {0, total}) {}
    array_part(index_t total, range part) : all(total), here(part) {}
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

/// What rank j of `ranks` serves of n values, where messages of parts are encoded (compress/two_phase.hpp). All begin
/// at multiples of 128 values; the last ones may be shorter, or empty.
inline range chunk_of(index_t n, int ranks, int j) {
    const index_t each = ((n + ranks - 1) / ranks + 127) / 128 * 128;
    const index_t begin = std::min(n, j * each);
    return {begin, std::min(n, begin + each) - begin};
}

/// Parts of an array, cut into pieces of at most `grain` elements, for sums by parts. A part's pieces, and so the bits
/// of its sum, do not depend on the other parts.
struct parts_in_pieces {
    std::vector<range> pieces;
    std::vector<index_t> first{0};  // piece of each part, and one past the last

    parts_in_pieces(std::span<const range> parts, index_t grain) {
        for (const range& part : parts) {
            for (index_t at = part.begin; at < part.end(); at += grain)
                pieces.push_back({at, std::min(grain, part.end() - at)});
            first.push_back(static_cast<index_t>(pieces.size()));
        }
    }
    index_t parts() const { return static_cast<index_t>(first.size()) - 1; }
};

template <class T>
std::span<T> subspan(std::span<T> all, range s) {
    return all.subspan(static_cast<std::size_t>(s.begin), static_cast<std::size_t>(s.count));
}

}  // namespace cairn
