#pragma once
// Lab 6, given: what a rank keeps, and how an array is cut. Nothing here is to be written.
//
// What you have (cairn/comm), for a communicator c:
//   c.rank(), c.size()                          this rank's number, and how many ranks there are
//   cairn::reduce_scatter(c, span, parts)       in place: part c.rank() of the span becomes the sum over all ranks; the
//                                               other parts are undefined afterwards
//   cairn::all_gather(c, span, parts)           part r of the span comes from rank r; every rank then has all of it
// `parts` are those of parts_of(span.size(), c.size()), the same on each rank. Both are rings: for n numbers all ranks
// together send (p − 1) n numbers.

#include <cairn/comm/collectives/all_gather.hpp>
#include <cairn/comm/collectives/reduce_scatter.hpp>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace student {

/// All that a rank keeps from one call to the next: the tests store it, count it, and hand it to the next call.
struct rank_state {
    std::vector<float> parameters, gradients, m, v;
    std::int64_t steps = 0;  // of Adam, so far: each step raises it before it calls adam, whose t it is
};

/// n elements in p nearly equal parts, one behind the other: the first n mod p have one more. parts[r].begin is where
/// part r begins, parts[r].count how many elements it has; some may have none. cairn::index_t is a signed
/// integer of 64 bits.
inline std::vector<cairn::range> parts_of(std::size_t n, int p) {
    std::vector<cairn::range> parts;
    cairn::index_t begin = 0;
    for (int r = 0; r < p; ++r) {
        const auto ranks = static_cast<std::size_t>(p);
        const auto count = static_cast<cairn::index_t>(n / ranks + (static_cast<std::size_t>(r) < n % ranks ? 1 : 0));
        parts.push_back({begin, count});
        begin += count;
    }
    return parts;
}

/// The elements of `data`, a std::span<float> or std::span<const float>, that `part` names. Of a vector v:
/// elements(std::span<float>(v), part).
template <class T>
std::span<T> elements(std::span<T> data, const cairn::range& part) {
    return data.subspan(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.count));
}

}  // namespace student
