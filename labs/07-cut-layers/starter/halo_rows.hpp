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
    (void)n, (void)p, (void)rank, (void)w;
    throw std::logic_error("task 3: halo_of is not written yet");
}

/// Bytes that a rank of the grid in halo.hpp sends when it fetches a halo of `radius` rows: its own block is
/// channels × depth × height × width doubles. `neighbours`: whether there is a rank below and above in depth, and below
/// and above in height.
inline std::size_t halo_bytes(std::size_t channels, std::size_t depth, std::size_t height, std::size_t width,
                              std::size_t radius, const std::array<bool, 4>& neighbours) {
    (void)channels, (void)depth, (void)height, (void)width, (void)radius, (void)neighbours;
    throw std::logic_error("task 3: halo_bytes is not written yet");
}

}  // namespace student
