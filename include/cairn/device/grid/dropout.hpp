#pragma once
// Dropout on a grid device: the same elements are dropped as by device/cpu/dropout.hpp. Word w of Philox block 16 g + j
// belongs to element 64 g + 16 w + j: a thread computes eight neighbouring blocks, which decide about four packets of
// eight elements, 16 apart, all in flight before the first block is computed.
// Bytes: x and y, in packets where they lie so; a quarter of a block an element, none twice.

#include <cairn/core/random.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

template <class T>
struct dropout_kernel {
    index_t n, first;
    bool aligned;
    std::uint32_t threshold;
    sum_type<T> scale;
    random_stream random;
    const std::uint32_t* step;  // where its step is; null: it has it
    const T* x;
    T* y;

    /// Threads: one for each half of 64 elements of the batch.
    CAIRN_HD index_t halves() const { return 2 * ((first + n + 63) / 64 - first / 64); }

    CAIRN_HD void operator()(index_t k) const {
        random_stream now = random;
        if (step) now.step = *step;
        const index_t half = first / 64 * 2 + k;  // of the whole batch
        T v[4][packet_lanes];
        for (int w = 0; w < 4; ++w) load(place(half, w), v[w]);
        std::uint32_t kept = 0;  // bit 8 w + j
        for (int j = 0; j < packet_lanes; ++j) {
            const auto bits = now.bits4(static_cast<std::uint64_t>(packet_lanes * half + j));
            for (int w = 0; w < 4; ++w)
                kept |= (bits[static_cast<std::size_t>(w)] >= threshold ? 1u : 0u) << (packet_lanes * w + j);
        }
        for (int w = 0; w < 4; ++w) {
            for (int j = 0; j < packet_lanes; ++j)
                v[w][j] = kept >> (packet_lanes * w + j) & 1u
                              ? static_cast<T>(static_cast<sum_type<T>>(v[w][j]) * scale)
                              : T{};
            store(place(half, w), v[w]);
        }
    }

private:
    CAIRN_HD index_t place(index_t half, int w) const {
        return half / 2 * 64 + 16 * w + half % 2 * packet_lanes - first;
    }
    CAIRN_HD bool whole(index_t at) const { return aligned && at >= 0 && at + packet_lanes <= n; }
    CAIRN_HD void load(index_t at, T (&v)[packet_lanes]) const {
        if (whole(at)) return load_packet(x + at, true, packet_lanes, v);
        for (int j = 0; j < packet_lanes; ++j) v[j] = at + j >= 0 && at + j < n ? x[at + j] : T{};
    }
    CAIRN_HD void store(index_t at, const T (&v)[packet_lanes]) const {
        if (whole(at)) return store_packet(y + at, true, packet_lanes, v);
        for (int j = 0; j < packet_lanes; ++j)
            if (at + j >= 0 && at + j < n) y[at + j] = v[j];
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
    const grid::dropout_kernel<T> drop{.n = n,
                                       .first = first,
                                       .aligned = grid::packets_fit(x, y) && first % grid::packet_lanes == 0,
                                       .threshold = static_cast<std::uint32_t>(rate * 0x1p32),
                                       .scale = static_cast<grid::sum_type<T>>(1 / (1 - rate)),
                                       .random = random,
                                       .step = step,
                                       .x = x,
                                       .y = y};
    grid::for_indices(d, drop.halves(), drop);
}

}  // namespace cairn
