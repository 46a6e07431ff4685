#pragma once
// A piece of a global tensor: a box of it, and of that box's elements, in row-major order, those from `first` on.
//   a whole tensor           the box is the tensor, and all of its elements are there
//   a slice of a mesh axis   the box is smaller than the tensor
//   a range, as ZeRO has it  elements [first, first + count) of a box
//   a replica's share        the same
// What two pieces share is found row by row along the last axis, after axes that both boxes have whole were joined with
// the one before. So whoever wrote a state in pieces, and whoever needs other pieces of it, copies runs of memory.
// Tested against element-wise loops on random pieces (tests/state/piece_test.cpp).

#include <cairn/core/parameter.hpp>
#include <cairn/core/range.hpp>
#include <cairn/core/shape.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

namespace cairn {

/// See the top of the file.
struct piece {
    shape global;                                  // extents of the whole tensor
    std::array<index_t, shape::max_rank> begin{};  // of the box, by axis
    shape extent;                                  // of the box
    index_t first = 0, count = 0;                  // elements of the box that are here

    /// All of a tensor.
    static piece whole(const shape& s) { return {s, {}, s, 0, s.size()}; }
    /// Elements `part` of a slice of shape `here`, which lies in the whole as `layout` says: a box, or, of a parameter
    /// of `parts` equal arrays one after another (Q, K and V), a box in each. In order, together all of `part`.
    static std::vector<piece> of(const parameter_layout& layout, const shape& here, range part) {
        if (layout.is_whole()) return {{here, {}, here, part.begin, part.count}};
        std::vector<piece> boxes;
        const shape extent = here.with(0, here[0] / layout.parts);
        for (index_t k = 0; k < layout.parts; ++k) {
            const index_t begin = std::max(part.begin, k * extent.size()),
                          end = std::min(part.end(), (k + 1) * extent.size());
            if (begin >= end && layout.parts > 1) continue;
            boxes.push_back({layout.global, layout.begin, extent, begin - k * extent.size(), end - begin});
            boxes.back().begin[0] += k * (layout.global[0] / layout.parts);
        }
        return boxes;
    }
    /// The same as row `r` of `rows`: of a tensor with an axis more in front.
    piece in_row(index_t r, index_t rows) const {
        piece p{{rows}, {r}, {1}, first, count};
        for (int a = 0; a < global.rank(); ++a) {
            p.begin[static_cast<std::size_t>(a + 1)] = begin[static_cast<std::size_t>(a)];
            p.global.push_back(global[a]);
            p.extent.push_back(extent[a]);
        }
        return p;
    }

    /// Elements [from, from + n) of those that are here.
    piece part(index_t from, index_t n) const { return {global, begin, extent, first + from, n}; }
    bool is_whole() const { return extent == global && first == 0 && count == global.size(); }
    /// Whether box and elements lie within the tensor.
    bool fits() const {
        bool inside = extent.rank() == global.rank() && first >= 0 && count >= 0 && first <= extent.size() &&
                      count <= extent.size() - first;
        for (int a = 0; inside && a < global.rank(); ++a) {
            const index_t b = begin[static_cast<std::size_t>(a)];
            inside = b >= 0 && extent[a] <= global[a] && b <= global[a] - extent[a];
        }
        return inside;
    }
    bool operator==(const piece&) const = default;

    friend std::ostream& operator<<(std::ostream& out, const piece& p) {
        if (p.is_whole()) return out << p.global;
        out << p.count << " elements from element " << p.first << " on of the box " << p.extent << " from (";
        for (int a = 0; a < p.global.rank(); ++a) out << (a ? ", " : "") << p.begin[static_cast<std::size_t>(a)];
        return out << ") of " << p.global;
    }
};

/// Calls run(at_a, at_b, n) for each run of elements that both pieces of one tensor have: n elements from element at_a
/// of those of `a` are those from element at_b of `b`. Throws where the pieces are not of one tensor.
template <class Run>
void for_shared_runs(const piece& a, const piece& b, Run&& run) {
    require(a.global == b.global, "pieces of a tensor of shape ", a.global, " and of one of shape ", b.global);
    const auto at = [](int axis) { return static_cast<std::size_t>(axis); };
    int rank = a.global.rank();
    if (rank == 0) {
        if (a.count && b.count) run(0, 0, 1);
        return;
    }
    // Axes at the end that both boxes have whole are joined with the one before.
    index_t inner = 1;
    while (rank > 1 && a.extent[rank - 1] == a.global[rank - 1] && b.extent[rank - 1] == b.global[rank - 1])
        inner *= a.global[--rank];
    std::array<index_t, shape::max_rank> begin{}, end{}, now{};
    for (int x = 0; x < rank; ++x) {
        begin[at(x)] = std::max(a.begin[at(x)], b.begin[at(x)]);
        end[at(x)] = std::min(a.begin[at(x)] + a.extent[x], b.begin[at(x)] + b.extent[x]);
        if (begin[at(x)] >= end[at(x)]) return;
    }
    if (inner == 0) return;
    const auto position = [&](const piece& p) {  // of the row's first element in the box
        index_t i = 0;
        for (int x = 0; x < rank; ++x) i = i * p.extent[x] + now[at(x)] - p.begin[at(x)];
        return i * inner;
    };
    const int last = rank - 1;
    const index_t length = (end[at(last)] - begin[at(last)]) * inner;
    for (now = begin;;) {
        const index_t in_a = position(a), in_b = position(b);
        const index_t s = std::max({index_t{0}, a.first - in_a, b.first - in_b});
        const index_t t = std::min({length, a.first + a.count - in_a, b.first + b.count - in_b});
        if (s < t) run(in_a + s - a.first, in_b + s - b.first, t - s);
        int x = last - 1;
        while (x >= 0 && ++now[at(x)] == end[at(x)]) now[at(x)] = begin[at(x)], --x;
        if (x < 0) return;
    }
}

/// Calls run(at, position, n) for each run of a piece: n elements from element `at` of those that are here follow each
/// other from `position` of the whole tensor on. Takes time for the elements that are here, however large the box.
template <class Run>
void for_runs_in_whole(const piece& p, Run&& run) {
    int rank = p.global.rank();
    index_t length = 1;  // of a row of the box that is one run: axes at the end that the box has whole, and one more
    while (rank > 0 && p.extent[rank - 1] == p.global[rank - 1]) length *= p.global[--rank];
    const index_t inner = length;
    if (rank > 0) length *= p.extent[rank - 1];
    for (index_t at = 0; at < p.count;) {
        const index_t in_row = (p.first + at) % length, n = std::min(length - in_row, p.count - at);
        index_t row = (p.first + at) / length, position = in_row, stride = inner;
        for (int x = rank - 1; x >= 0; --x) {
            index_t i = p.begin[static_cast<std::size_t>(x)];
            if (x < rank - 1) i += row % p.extent[x], row /= p.extent[x];
            position += i * stride;
            stride *= p.global[x];
        }
        run(at, position, n);
        at += n;
    }
}

/// Copies the elements that both have from those of `a` to those of `b`. Returns how many.
inline index_t copy_shared(const piece& a, const void* from, const piece& b, void* to, std::size_t element_bytes) {
    index_t copied = 0;
    for_shared_runs(a, b, [&](index_t at_a, index_t at_b, index_t n) {
        std::memcpy(static_cast<char*>(to) + static_cast<std::size_t>(at_b) * element_bytes,
                    static_cast<const char*>(from) + static_cast<std::size_t>(at_a) * element_bytes,
                    static_cast<std::size_t>(n) * element_bytes);
        copied += n;
    });
    return copied;
}

/// Number of elements that both have.
inline index_t shared_elements(const piece& a, const piece& b) {
    index_t all = 0;
    for_shared_runs(a, b, [&](index_t, index_t, index_t n) { all += n; });
    return all;
}

}  // namespace cairn
