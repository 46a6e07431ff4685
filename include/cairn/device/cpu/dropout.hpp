#pragma once
// Dropout with inverted scaling (Srivastava et al. 2014):  y = keep ? x / (1 - p) : 0,   the same map for dy in
// backward. The mask is not stored: whether element i is kept follows from Philox bits of (seed, stream, step, i),
// computed again in backward.
//   bits of element i = word (i / 16) mod 4 of Philox block 16 (i / 64) + i mod 16,   kept if bits ≥ p 2^32
// Sixteen blocks side by side make four packs of bits that need no shuffling. Memory traffic: x read, y written.
// Tested against the scalar philox() of core/random.hpp.

#include <cairn/core/parallel.hpp>
#include <cairn/core/random.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/work.hpp>

#include <algorithm>
#include <cstdint>

namespace cairn {

namespace detail {

inline constexpr index dropout_group = 64;  // elements of sixteen Philox blocks

/// The bits of elements [64 group, 64 group + 64), element order.
[[gnu::always_inline]] inline void dropout_bits(const random_stream& random, std::uint64_t group, std::uint32_t* bits) {
    constexpr int width = 16;
    const auto key_low = static_cast<std::uint32_t>(random.seed),
               key_high = static_cast<std::uint32_t>(random.seed >> 32);
    std::uint32_t c0[width], c1[width], c2[width], c3[width];
    for (int i = 0; i < width; ++i) {
        const std::uint64_t block = group * width + static_cast<std::uint64_t>(i);
        c0[i] = static_cast<std::uint32_t>(block);
        c1[i] = static_cast<std::uint32_t>(block >> 32);
        c2[i] = random.step;
        c3[i] = random.stream;
    }
    for (std::uint32_t round = 0; round < 10; ++round) {
        const std::uint32_t k0 = key_low + round * 0x9E3779B9u, k1 = key_high + round * 0xBB67AE85u;
#pragma omp simd
        for (int i = 0; i < width; ++i) {
            const std::uint64_t product0 = std::uint64_t{0xD2511F53} * c0[i],
                                product1 = std::uint64_t{0xCD9E8D57} * c2[i];
            const std::uint32_t old1 = c1[i], old3 = c3[i];
            c0[i] = static_cast<std::uint32_t>(product1 >> 32) ^ old1 ^ k0;
            c1[i] = static_cast<std::uint32_t>(product1);
            c2[i] = static_cast<std::uint32_t>(product0 >> 32) ^ old3 ^ k1;
            c3[i] = static_cast<std::uint32_t>(product0);
        }
    }
    for (int i = 0; i < width; ++i) {
        bits[i] = c0[i];
        bits[width + i] = c1[i];
        bits[2 * width + i] = c2[i];
        bits[3 * width + i] = c3[i];
    }
}

}  // namespace detail

/// y = x scaled where kept, 0 elsewhere; y may be x. rate in [0, 1). Two calls with the same `random` drop the same
/// elements. 1 flop per element.
template <class T>
void dropout_apply(cpu, index n, double rate, const random_stream& random, const T* x, T* y) {
    require(rate >= 0 && rate < 1, "dropout: rate ", rate, " is not in [0, 1)");
    work::count(static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    const auto threshold = static_cast<std::uint32_t>(rate * 0x1p32);
    const T scale = static_cast<T>(1 / (1 - rate));
    constexpr index group = detail::dropout_group;
    parallel_for((n + group - 1) / group, 256, [=](index begin, index end) {
        std::uint32_t bits[group];
        for (index g = begin; g < end; ++g) {
            detail::dropout_bits(random, static_cast<std::uint64_t>(g), bits);
            const T* const in = x + g * group;
            T* const out = y + g * group;
            if (g * group + group <= n) {
#pragma omp simd
                for (index i = 0; i < group; ++i) out[i] = bits[i] >= threshold ? in[i] * scale : T(0);
            } else {
                for (index i = 0; i < n - g * group; ++i) out[i] = bits[i] >= threshold ? in[i] * scale : T(0);
            }
        }
    });
}

}  // namespace cairn
