#pragma once
// Dropout on a grid device: the same elements are dropped as by device/cpu/dropout.hpp. A thread computes one Philox
// block, which decides about four elements, 16 apart: word w of block 16 g + j belongs to element 64 g + 16 w + j.

#include <cairn/core/random.hpp>
#include <cairn/device/grid/for_each.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

template <class T>
struct dropout_kernel {
    index_t n, first;
    std::uint32_t threshold;
    sum_type<T> scale;
    random_stream random;
    const std::uint32_t* step;  // where its step is; null: it has it
    const T* x;
    T* y;

    CAIRN_HD index_t first_block() const { return first / 64 * 16; }
    CAIRN_HD index_t blocks() const { return (first + n + 63) / 64 * 16 - first_block(); }

    CAIRN_HD void operator()(index_t k) const {
        random_stream now = random;
        if (step) now.step = *step;
        const index_t i = first_block() + k;
        const auto bits = now.bits4(static_cast<std::uint64_t>(i));
        for (int w = 0; w < 4; ++w) {
            const index_t at = i / 16 * 64 + 16 * w + i % 16 - first;
            if (at >= 0 && at < n)
                y[at] = bits[static_cast<std::size_t>(w)] >= threshold
                            ? static_cast<T>(static_cast<sum_type<T>>(x[at]) * scale)
                            : T{};
        }
    }
};

}  // namespace grid

/// As on the host (device/cpu/dropout.hpp); `step` is in the device's memory.
template <class T, GridDevice D>
void dropout_apply(D d, index_t n, double rate, const random_stream& random, const T* x, T* y, index_t first = 0,
                   const std::uint32_t* step = nullptr) {
    require(rate >= 0 && rate < 1, "dropout: rate ", rate, " is not in [0, 1)");
    require(first >= 0, "dropout: first element ", first, " of the batch");
    flop_counter::count(static_cast<double>(n), 2.0 * static_cast<double>(n) * sizeof(T));
    if (n == 0) return;
    const grid::dropout_kernel<T> drop{n,
                                       first,
                                       static_cast<std::uint32_t>(rate * 0x1p32),
                                       static_cast<grid::sum_type<T>>(1 / (1 - rate)),
                                       random,
                                       step,
                                       x,
                                       y};
    grid::for_indices(d, drop.blocks(), drop);
}

}  // namespace cairn
