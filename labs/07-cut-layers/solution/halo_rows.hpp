#pragma once
// Lab 7, task 3: along one axis that is cut, which rows does a rank need that it does not own? And how many bytes is a
// halo? Output row o of a window of `kernel` rows with stride S and padding P reads the input rows o S − P,
// o S − P + 1, …, o S − P + kernel − 1. Rows below 0 and from n on are outside: nobody has them, they are zeros.

#include "arrays.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace student {

struct window {
    int kernel = 3, stride = 1, padding = 1;
};

/// Of an axis of n rows, what rank `rank` of p does before it can compute its outputs.
struct halo {
    int need_begin = 0, need_end = 0;          // the rows [begin, end) that its outputs read, those outside included
    int outside_lower = 0, outside_upper = 0;  // how many of them are below 0, and how many from n on
    int take_lower = 0, take_upper = 0;        // how many of them rank − 1 and rank + 1 own
    int give_lower = 0, give_upper = 0;        // how many of its own rows it gives to rank − 1 and to rank + 1

    bool operator==(const halo&) const = default;
};

/// There are (n + 2 padding − kernel) / stride + 1 outputs, rounded down. A rank owns the inputs part_of(n, rank, p)
/// and the outputs part_of(outputs, rank, p), at least one of each (callers see to that). Throws
/// std::invalid_argument if this rank, rank − 1 or rank + 1 needs rows of a rank that is not next to it.
inline halo halo_of(int n, int p, int rank, const window& w) {
    //! solution
    struct rows {
        int begin, end;
    };
    const auto share = [&](int all, int r) {
        const part mine = part_of(static_cast<std::size_t>(all), r, p);
        return rows{static_cast<int>(mine.begin), static_cast<int>(mine.begin + mine.count)};
    };
    const auto needs = [&](int r) {
        const rows outputs = share((n + 2 * w.padding - w.kernel) / w.stride + 1, r);
        return rows{outputs.begin * w.stride - w.padding, (outputs.end - 1) * w.stride - w.padding + w.kernel};
    };
    // Rows that rank r takes from below and from above.
    const auto takes = [&](int r) -> std::array<int, 2> {
        const rows own = share(n, r), need = needs(r);
        const int first = std::clamp(need.begin, 0, n), last = std::clamp(need.end, 0, n);
        const std::array<int, 2> rows_of{std::max(0, own.begin - first), std::max(0, last - own.end)};
        const bool fits = (r == 0 || first >= share(n, r - 1).begin) && (r + 1 == p || last <= share(n, r + 1).end);
        if (!fits || first > own.end || last < own.begin)
            throw std::invalid_argument("a halo reaches beyond the next rank");
        return rows_of;
    };
    const rows need = needs(rank);
    halo h{.need_begin = need.begin, .need_end = need.end};
    h.outside_lower = std::max(0, std::min(0, need.end) - need.begin);
    h.outside_upper = std::max(0, need.end - std::max(n, need.begin));
    h.take_lower = takes(rank)[0];
    h.take_upper = takes(rank)[1];
    h.give_lower = rank > 0 ? takes(rank - 1)[1] : 0;
    h.give_upper = rank + 1 < p ? takes(rank + 1)[0] : 0;
    return h;
    //! starter
    // (void)n, (void)p, (void)rank, (void)w;
    // throw std::logic_error("task 3: halo_of is not written yet");
    //! end
}

/// Bytes that a rank of the grid in halo.hpp sends when it fetches a halo of `radius` rows: its own block is
/// channels × depth × height × width doubles. `neighbours`: whether there is a rank below and above in depth, and below
/// and above in height.
inline std::size_t halo_bytes(std::size_t channels, std::size_t depth, std::size_t height, std::size_t width,
                              std::size_t radius, const std::array<bool, 4>& neighbours) {
    //! solution
    const std::size_t in_depth = (neighbours[0] + neighbours[1]) * radius * height;
    const std::size_t in_height = (neighbours[2] + neighbours[3]) * radius * (depth + 2 * radius);
    return sizeof(double) * channels * width * (in_depth + in_height);
    //! starter
    // (void)channels, (void)depth, (void)height, (void)width, (void)radius, (void)neighbours;
    // throw std::logic_error("task 3: halo_bytes is not written yet");
    //! end
}

}  // namespace student
