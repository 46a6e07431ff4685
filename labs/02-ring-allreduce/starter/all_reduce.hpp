#pragma once
// Lab 2, tasks 1 and 2: all-reduce over point-to-point messages.
//
// Before: every rank has an array of the same length. After: every rank has the sums over all ranks, in place.
//
// What you have (cairn/comm/communicator.hpp), for a communicator c:
//   c.rank(), c.size()                           this rank's number, and how many ranks there are
//   cairn::send(c, span, to, tag), cairn::recv(c, span, from, tag)
//   cairn::sendrecv(c, out, to, in, from, tag)   sends the span `out` to rank `to` while receiving into the span `in`
//                                                from rank `from`
// A receive must have exactly as many elements as were sent. Tags are yours, 0 to 8191.

#include <cairn/comm/communicator.hpp>

#include <cstddef>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace student {

/// Part `i` of `parts` nearly equal ones, 0 ≤ i < parts: the first size % parts of them have one element more. Given.
inline std::span<float> part_of(std::span<float> data, int i, int parts) {
    if (i < 0 || i >= parts)
        throw std::out_of_range("part_of: part " + std::to_string(i) + " of " + std::to_string(parts));
    const std::size_t n = data.size(), p = static_cast<std::size_t>(parts), k = static_cast<std::size_t>(i);
    const std::size_t small = n / p, larger = n % p;
    return data.subspan(k * small + (k < larger ? k : larger), small + (k < larger ? 1 : 0));
}

/// Task 1. The array is cut into c.size() parts. In p − 1 steps every rank passes a part to its right neighbour and
/// adds what comes from its left one, until rank r has part r + 1 complete; in p − 1 more steps the complete parts go
/// round.
template <class C>
void ring_all_reduce(C& c, std::span<float> data) {
    (void)c;
    (void)data;
    throw std::logic_error("task 1: ring_all_reduce is not written yet");
}

/// Task 2. With p = 2^k ranks: in k steps of halving, a rank exchanges half of what it still works on with the rank
/// that differs in one bit of its number, the highest bit first, and adds the half that it keeps: the lower half, the
/// smaller one where they differ, if its bit is 0. In k steps of doubling the complete halves come back. Where p is no
/// power of two, the ranks beyond the largest one first give their array to a partner, and get the result from it at
/// the end.
template <class C>
void halving_doubling_all_reduce(C& c, std::span<float> data) {
    (void)c;
    (void)data;
    throw std::logic_error("task 2: halving_doubling_all_reduce is not written yet");
}

}  // namespace student
