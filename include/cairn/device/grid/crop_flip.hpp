#pragma once
// Inputs made of 8-bit images on a grid device (core/crop_flip.hpp), in one launch a batch: moved, padded, normalised.
// Bytes moved: 1 read and sizeof(T) written an element; the table stays in the cache.

#include <cairn/core/crop_flip.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/for_each.hpp>

#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

template <class T>
struct inputs_of_pixels_kernel {
    std::int32_t height, width, channels;
    const std::uint8_t* pixels;
    const crop_flip* moves;
    const T* table;
    T* x;

    CAIRN_HD void operator()(index_t i) const {
        const index_t line = index_t{width} * channels, row = quotient(i, line), image = quotient(row, height);
        const auto within = static_cast<std::int32_t>(i - row * line);
        const std::int32_t column = within / channels, c = within - column * channels;
        const crop_flip move = moves[image];
        const std::int32_t y = move.row(static_cast<std::int32_t>(row - image * height)),
                           u = move.column(column, width);
        x[i] = y >= 0 && y < height && u >= 0 && u < width
                   ? table[c * pixel_values + pixels[((image * height + y) * width + u) * channels + c]]
                   : T{};
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
    queue.launch({.blocks = grid::blocks_for<D>(n, 256), .threads = 256},
                 grid::index_kernel<kernel>{n, {extent(1), extent(2), extent(3), pixels, moves, table, x}});
}

}  // namespace cairn
