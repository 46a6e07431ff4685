#pragma once
// A box within an array: positions [begin, begin + count) along each axis, as the contiguous runs that it consists of.
// Axes at the end that the box takes whole make the runs longer. Tested against plain loops in tests/core/box_test.cpp.

#include <cairn/core/shape.hpp>

#include <array>
#include <span>

namespace cairn {

/// Throws unless the box of shape `box` from `begin` lies within an array of shape `whole`.
inline void check_box(const shape& whole, std::span<const index_t> begin, const shape& box) {
    require(box.rank() == whole.rank() && static_cast<int>(begin.size()) == whole.rank(), "a box of ", box.rank(),
            " axes, which begins at ", begin.size(), " positions, in an array of shape ", whole);
    for (int a = 0; a < whole.rank(); ++a) {
        const index_t first = begin[static_cast<std::size_t>(a)];
        require(first >= 0 && first <= whole[a] && box[a] <= whole[a] - first, "a box of shape ", box, " from ", first,
                " on axis ", a, " does not lie within ", whole);
    }
}

/// Calls run(in_whole, in_box, length) for each run, in memory order: `length` elements from element `in_whole` of the
/// array are those from element `in_box` of the box. Throws where the box is not within the array.
template <class Run>
void for_runs(const shape& whole, std::span<const index_t> begin, const shape& box, Run&& run) {
    check_box(whole, begin, box);
    const int rank = whole.rank();
    const auto at = [](int axis) { return static_cast<std::size_t>(axis); };
    if (box.size() == 0) return;

    int last = rank - 1;  // the axis that the runs go along; those behind it are whole
    while (last > 0 && box[last] == whole[last]) --last;
    index_t length = 1, first = 0, stride = 1;
    std::array<index_t, shape::max_rank> strides{}, position{};
    for (int a = rank; a-- > 0;) {
        first += begin[at(a)] * stride;
        strides[at(a)] = stride;
        stride *= whole[a];
        if (a >= last) length *= box[a];
    }
    for (index_t done = 0; done < box.size(); done += length) {
        run(first, done, length);
        for (int a = last; a-- > 0;) {
            first += strides[at(a)];
            if (++position[at(a)] < box[a]) break;
            first -= position[at(a)] * strides[at(a)];
            position[at(a)] = 0;
        }
    }
}

}  // namespace cairn
