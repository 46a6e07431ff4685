#pragma once
// Inputs made of 8-bit images on a grid device (core/crop_flip.hpp), in one launch a batch: moved, padded, normalised.
// A thread makes four neighbouring values and writes them at once; a warp reads a line of 128 bytes where images do not
// move. Bytes moved: 1 read and sizeof(T) written an element. Where all channels' tables fit, each block keeps them in
// its own memory.

#include <cairn/core/crop_flip.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cuda/for_each.hpp>

#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

inline constexpr index_t most_table_bytes = 16 << 10;  // of a block

/// A value's place, from which the next one is found without a division.
struct pixel_place {
    std::int32_t height, width, channels;
    index_t image;
    std::int32_t y, u, c;

    CAIRN_HD pixel_place(std::int32_t h, std::int32_t w, std::int32_t channels_, index_t element)
        : height(h), width(w), channels(channels_) {
        const index_t row = quotient(element, index_t{w} * channels);
        const auto within = static_cast<std::uint32_t>(element - row * (index_t{w} * channels));
        image = quotient(row, h);
        y = static_cast<std::int32_t>(row - image * h);
        u = static_cast<std::int32_t>(within / static_cast<std::uint32_t>(channels));
        c = static_cast<std::int32_t>(within) - u * channels;
    }
    CAIRN_HD void next() {
        if (++c < channels) return;
        c = 0;
        if (++u < width) return;
        u = 0;
        if (++y < height) return;
        y = 0;
        ++image;
    }
};

template <class T>
struct inputs_of_pixels_kernel {
    std::int32_t height, width, channels;
    index_t n;            // values of all images
    bool aligned;         // four at once may be read and written
    bool table_in_block;  // rather than in the device's memory
    const std::uint8_t* pixels;
    const crop_flip* moves;
    const T* table;
    T* x;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const T* values = table;
        if (table_in_block) {
            T* const copy = b.template shared<T>();
            for (index_t i = b.thread(); i < channels * pixel_values; i += b.threads()) copy[i] = table[i];
            b.sync();
            values = copy;
        }
        const index_t stride = 4 * b.blocks() * b.threads();
        for (index_t i = 4 * (b.block() * b.threads() + b.thread()); i < n; i += stride) four(values, i);
    }

    CAIRN_HD void four(const T* values, index_t i) const {
        const index_t count = n - i < 4 ? n - i : 4;
        pixel_place at(height, width, channels, i);
        crop_flip move = moves[at.image];
        const index_t size = index_t{height} * width * channels;
        packet<T, 4> out{};
        if (aligned && !move.moves() && count == 4 && i + 4 <= (at.image + 1) * size) {
            const auto in = reinterpret_cast<const packet<std::uint8_t, 4>*>(pixels)[i / 4];
            std::int32_t c = at.c;
            CAIRN_UNROLL
            for (int j = 0; j < 4; ++j) {
                out.v[j] = values[c * pixel_values + in.v[j]];
                c = c + 1 < channels ? c + 1 : 0;
            }
        } else {
            CAIRN_UNROLL
            for (int j = 0; j < 4; ++j) {
                if (j >= count) continue;
                const std::int32_t y = move.row(at.y), u = move.column(at.u, width);
                if (y >= 0 && y < height && u >= 0 && u < width)
                    out.v[j] = values[at.c * pixel_values +
                                      pixels[at.image * size + (index_t{y} * width + u) * channels + at.c]];
                const index_t image = at.image;
                at.next();
                if (at.image != image && j + 1 < count) move = moves[at.image];
            }
        }
        if (aligned && count == 4) {
            reinterpret_cast<packet<T, 4>*>(x)[i / 4] = out;
        } else {
            CAIRN_UNROLL
            for (int j = 0; j < 4; ++j)
                if (j < count) x[i + j] = out.v[j];
        }
    }
};

}  // namespace grid

/// x (N, H, W, C) of `pixels` of the same shape, `moves` (N) and `table` (C, 256), all in memory of D, launched by
/// queue.launch(grid, kernel): D itself, or its stream of copies. Throws when an image has 2^31 values or more.
template <class T, GridDevice D, class Queue>
void inputs_of_pixels(D, Queue&& queue, const shape& images, const std::uint8_t* pixels, const crop_flip* moves,
                      const T* table, T* x) {
    require(images.rank() == 4, "inputs of pixels: images of shape ", images, "; (N, H, W, C) is expected");
    const index_t n = images.size(), count = images[0], channels = images[3];
    if (n == 0) return;
    require(n / count <= std::numeric_limits<std::int32_t>::max(), "inputs of pixels: images of shape ", images,
            " have ", n / count, " values each; at most 2^31 - 1 are possible");
    flop_counter::count(0, static_cast<double>(n) * (1 + sizeof(T)) + static_cast<double>(count) * sizeof(crop_flip));
    const index_t table_bytes = channels * pixel_values * static_cast<index_t>(sizeof(T));
    const bool table_in_block = table_bytes <= grid::most_table_bytes;
    queue.launch({.blocks = grid::blocks_for<D>((n + 3) / 4, 256, 4),
                  .threads = 256,
                  .shared = table_in_block ? table_bytes : 0},
                 grid::inputs_of_pixels_kernel<T>{
                     static_cast<std::int32_t>(images[1]), static_cast<std::int32_t>(images[2]),
                     static_cast<std::int32_t>(channels), n, grid::aligned_for_packets(4, pixels, x), table_in_block,
                     pixels, moves, table, x});
}

}  // namespace cairn
