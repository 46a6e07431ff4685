#pragma once
// Inputs made of 8-bit images on a grid device (core/crop_flip.hpp), in one launch a batch: moved, padded, normalised.
// Bytes moved: 1 read and sizeof(T) written an element, in packets of eight; the table stays in the cache. A packet
// takes the three divisions that find its first pixel, its elements count on from there.

#include <cairn/core/crop_flip.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

template <class T>
struct inputs_of_pixels_kernel {
    index_t n;
    bool aligned;
    std::int32_t height, width, channels;
    const std::uint8_t* pixels;
    const crop_flip* moves;
    const T* table;
    T* x;

    /// Packet p.
    CAIRN_HD void operator()(index_t p) const {
        const index_t at = p * packet_lanes, line = index_t{width} * channels, rows = quotient(at, line);
        const int count = n - at < packet_lanes ? static_cast<int>(n - at) : packet_lanes;
        const auto within = static_cast<std::int32_t>(at - rows * line);
        index_t image = quotient(rows, height);
        auto row = static_cast<std::int32_t>(rows - image * height);
        std::int32_t column = within / channels, c = within - column * channels;
        crop_flip move = moves[image];
        T v[packet_lanes];
        for (int j = 0; j < packet_lanes; ++j) {
            if (j >= count) break;
            const std::int32_t y = move.row(row), u = move.column(column, width);
            v[j] = y >= 0 && y < height && u >= 0 && u < width
                       ? table[c * pixel_values + pixels[((image * height + y) * width + u) * channels + c]]
                       : T{};
            if (++c < channels) continue;
            c = 0;
            if (++column < width) continue;
            column = 0;
            if (++row < height) continue;
            row = 0;
            ++image;
            if (j + 1 < count) move = moves[image];
        }
        store_packet(x + at, aligned && count == packet_lanes, count, v);
    }
};

}  // namespace grid

/// x (N, H, W, C) of `pixels` of the same shape, `moves` (N) and `table` (C, 256), all in memory of D, launched by
/// queue.launch(grid, kernel): D itself, or its stream of copies. Throws when an image has 2^31 values or more.
template <class T, GridDevice D, class Queue>
void inputs_of_pixels(D, Queue&& queue, const shape& images, const std::uint8_t* pixels, const crop_flip* moves,
                      const T* table, T* x) {
    require(images.rank() == 4, "inputs of pixels: images of shape ", images, "; (N, H, W, C) is expected");
    const index_t n = images.size(), count = images[0];
    if (n == 0) return;
    require(n / count <= std::numeric_limits<std::int32_t>::max(), "inputs of pixels: images of shape ", images,
            " have ", n / count, " values each; at most 2^31 - 1 are possible");
    flop_counter::count(0, static_cast<double>(n) * (1 + sizeof(T)) + static_cast<double>(count) * sizeof(crop_flip));
    const auto extent = [&](int axis) { return static_cast<std::int32_t>(images[axis]); };
    using kernel = grid::inputs_of_pixels_kernel<T>;
    const index_t packets = (n + grid::packet_lanes - 1) / grid::packet_lanes;
    queue.launch({.blocks = grid::blocks_for<D>(packets, 256), .threads = 256},
                 grid::index_kernel<kernel>{
                     packets, {n, grid::packets_fit(x), extent(1), extent(2), extent(3), pixels, moves, table, x}});
}

}  // namespace cairn
