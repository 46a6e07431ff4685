#pragma once
// All-reduce on a pipelined binary tree: the array in segments; each segment climbs from the leaves to rank 0, growing
// at each rank, and comes down again, while the next ones follow (van de Geijn 1994; Thakur, Rabenseifner and Gropp
// 2005).
//   parent of r: (r - 1) / 2     children: 2 r + 1 and 2 r + 2     depth d = ⌊lg p⌋
//   step i    segment i goes up (from the children, add, to the parent), segment i - d comes down
// Time ≈ 2 (lg p α + nβ) + nγ where a rank may send and receive at once and segments are many and cheap to start; with
// S segments of s bytes and one link a rank, (S + 2 d) steps of 2 (α + sβ) + 2 sγ.
// Latency of a tree with bandwidth that does not depend on p; half the bytes of a ring sit at the root.

#include <cairn/comm/reduction.hpp>
#include <cairn/core/tensor.hpp>

#include <algorithm>
#include <bit>
#include <span>
#include <string_view>
#include <vector>

namespace cairn {

inline constexpr int tree_tag = user_tags + 8;             // up
inline constexpr int tree_down_tag = user_tags + 9;        // and down
inline constexpr index_t tree_segment = index_t{1} << 17;  // bytes

/// data ← reduction over all ranks, in place.
template <Communicator C, class T>
void tree_all_reduce(C& c, std::span<T> data, reduction r = reduction::sum, std::string_view label = {}) {
    const auto n = static_cast<index_t>(data.size());
    [[maybe_unused]] const auto scope = enter(c, {"tree all-reduce", type_name<T>(), n, -1, label});
    const int p = c.size(), me = c.rank(), parent = (me - 1) / 2;
    const int depth = static_cast<int>(std::bit_width(static_cast<unsigned>(p))) - 1;
    std::vector<int> children;
    for (const int child : {2 * me + 1, 2 * me + 2})
        if (child < p) children.push_back(child);

    const index_t step = std::max<index_t>(1, tree_segment / static_cast<index_t>(sizeof(T))),
                  segments = (n + step - 1) / step;
    const auto segment = [&](index_t i) { return subspan(data, {i * step, std::min(step, n - i * step)}); };
    const auto wide = static_cast<index_t>(children.size());
    tensor<T> room = room_beside<T>(std::as_bytes(data), {std::max<index_t>(1, 2 * wide), std::min(step, n)});
    std::vector<typename C::request> coming(static_cast<std::size_t>(2 * wide));  // by child and parity of the segment
    const auto slot = [&](index_t child, index_t i) { return static_cast<std::size_t>(2 * child + i % 2); };
    const auto place = [&](index_t child, index_t i) {
        return std::span<T>(room.data() + static_cast<index_t>(slot(child, i)) * room.extent(1), segment(i).size());
    };
    const auto expect = [&](index_t i) {
        for (index_t k = 0; k < wide && i < segments; ++k)
            coming[slot(k, i)] = irecv(c, place(k, i), children[static_cast<std::size_t>(k)], tree_tag);
    };

    std::vector<typename C::request> up(static_cast<std::size_t>(segments)), down;
    expect(0);
    for (index_t i = 0; i < segments + depth; ++i) {
        if (i < segments) {
            expect(i + 1);
            for (index_t k = 0; k < wide; ++k) {
                coming[slot(k, i)].wait();
                reduce_local(c, segment(i), std::span<const T>(place(k, i)), r);
            }
            if (me != 0) up[static_cast<std::size_t>(i)] = isend(c, segment(i), parent, tree_tag);
        }
        if (const index_t j = i - depth; j >= 0) {
            if (me != 0) {
                up[static_cast<std::size_t>(j)].wait();
                recv(c, segment(j), parent, tree_down_tag);
            }
            for (const int child : children) down.push_back(isend(c, segment(j), child, tree_down_tag));
        }
    }
    for (auto& sent : down) sent.wait();
}

}  // namespace cairn
