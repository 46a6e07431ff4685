#pragma once
// Dropout with inverted scaling (Srivastava et al. 2014):  y = keep ? x / (1 - p) : 0,   the same map for dy in
// backward. The mask is not stored: whether element i is kept follows from Philox bits of (seed, stream, step, i),
// computed again in backward. i counts the elements of the whole batch, of which the call has a run from `first` on.
//   bits of element i = word (i / 16) mod 4 of Philox block 16 (i / 64) + i mod 16,   kept if bits ≥ p 2^32
// Sixteen blocks side by side make four packs of bits that need no shuffling. Memory traffic: x read, y written.
// Tested against the scalar philox() of core/random.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/philox.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <algorithm>
#include <cstdint>

namespace cairn {

namespace detail {

inline constexpr index_t dropout_group = 64;  // elements of sixteen Philox blocks

/// y[i] = bits[i] ≥ threshold ? x[i] scale : 0.
template <class T, class S>
[[gnu::always_inline]] inline void drop(index_t n, const std::uint32_t* bits, std::uint32_t threshold, S scale,
                                        const T* x, T* y) {
#pragma omp simd
    for (index_t i = 0; i < n; ++i) y[i] = bits[i] >= threshold ? x[i] * scale : S(0);
}

}  // namespace detail

/// y = x scaled where kept, 0 elsewhere; y may be x. rate in [0, 1). x and y begin with element `first` of the whole
/// batch. `step`: holds random.step when the kernel runs, or null. Two calls with the same `random` drop the same
/// elements. 1 flop per element.
template <class T>
void dropout_apply(cpu, index_t n, double rate, random_stream random, const T* x, T* y, index_t first = 0,
                   const std::uint32_t* step = nullptr) {
    require(rate >= 0 && rate < 1, "dropout: rate ", rate, " is not in [0, 1)");
    require(first >= 0, "dropout: first element ", first, " of the batch");
    if (n == 0) return;
    const kernel_call call("dropout", format_name<T>, static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T),
                           {n});
    if (step) random.step = *step;
    const auto threshold = static_cast<std::uint32_t>(rate * 0x1p32);
    const auto scale = static_cast<simd::arithmetic<T>>(1 / (1 - rate));  // T stores
    constexpr index_t group = detail::dropout_group;
    const index_t first_group = first / group, groups = (first + n - 1) / group - first_group + 1;
    const philox_lanes random_bits(random);
    parallel_for(groups, 256, [=](index_t begin, index_t end) {
        for (index_t g = begin; g < end; ++g) {
            std::uint32_t bits[group];
            const auto block = static_cast<std::uint64_t>(first_group + g) * 16;
            random_bits.blocks(block, bits, 16);
            random_bits.blocks(block + 8, bits + 8, 16);
            const index_t at = (first_group + g) * group - first;  // in x, of the group's first element
            if (at >= 0 && at + group <= n) {
                detail::drop(group, bits, threshold, scale, x + at, y + at);
            } else {
                const index_t skip = std::max<index_t>(0, -at), last = std::min(group, n - at);
                detail::drop(last - skip, bits + skip, threshold, scale, x + at + skip, y + at + skip);
            }
        }
    });
}

}  // namespace cairn
