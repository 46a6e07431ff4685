#pragma once
// A few values of an array, found and moved by the kernels of cpu/select.hpp and grid/select.hpp:
//   selection<D>                              values and where they are, by rising position; its memory comes from
//                                             prepare(n, most)
//   select_largest(d, x, k, chosen)           the k values of largest magnitude, exactly, of equal ones the first
//   select_sampled(d, x, k, chosen)           0.8 k to 1.3 k of the largest; exactly k on a grid device
//   pack_values(d, chosen, type, out)         the values as they travel
//   put_at_positions(d, positions, values, type, into, put)   put(into[positions[i]], values[i]); positions differ
//   zero_at_positions(d, chosen, x)           x[positions[i]] = 0
//   take_at_places(d, places, x, out)         values at random places that all ranks know: x[place i] to float i of out
//   put_at_places(d, places, values, unbiased, into, put)     put(into[place i], values[i]), times what makes them
//                                                             unbiased if that is asked for

#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/codes.hpp>

#include <bit>
#include <cstdint>

namespace cairn {

template <Device D>
class selection;

/// A magnitude as an integer in the same order: NaN above Inf above all numbers.
CAIRN_HD inline std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

/// How the values of a sparse message travel.
enum class sparse_value { float32, bfloat16 };

inline index_t bytes_of(sparse_value v) { return v == sparse_value::float32 ? 4 : 2; }

/// One place of each of k strata [⌊i n/k⌋, ⌊(i+1) n/k⌋) of n values: word i mod 4 of Philox block i / 4 says which.
struct random_places {
    index_t k, share, rest;  // ⌊i n/k⌋ = i share + ⌊i rest/k⌋, which does not overflow
    random_stream random;

    random_places(index_t n, index_t count, const random_stream& of)
        : k(count), share(k ? n / k : 0), rest(k ? n % k : 0), random(of) {}

    CAIRN_HD index_t begin_of(index_t i) const { return i * share + i * rest / k; }
    /// each(place, size of the stratum).
    template <class Each>
    CAIRN_HD void at(index_t i, std::uint32_t word, Each&& each) const {
        const index_t first = begin_of(i), size = begin_of(i + 1) - first;
        each(first + static_cast<index_t>((std::uint64_t{word} * static_cast<std::uint64_t>(size)) >> 32), size);
    }
};

}  // namespace cairn
