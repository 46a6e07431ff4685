#pragma once
// Between images (channels last, of I) and transformed tiles (of T, which is I, but float for images in bfloat16).
//
// An image is cut into tiles of m x m outputs, each from (m + 2) x (m + 2) inputs. A "column" is one tile position of
// one image through all depths, a "row" of a product is one column at one depth. A block of `columns` columns and some
// depths has row r = depth * columns + column, so the input that kernel depth kd needs for output row r is input row
// r + kd * columns: a 3-D convolution is the 2-D transform with a product whose sum also runs over kd.
//
// Transformed tiles are stored [position][channel block][row][lane]: what a transform writes and what the inner product
// kernel reads are both whole cache lines. Channels beyond the last are zeros.

#include <algorithm>
#include <array>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/winograd_simd.hpp>
#include <cairn/device/cpu/winograd_transform.hpp>

namespace cairn::winograd {

/// A channels-last image batch.
template <class T>
struct images {
    T* data;
    index_t depth, height, width, channels;
};

/// Transformed tiles of one block: position p, channel block b, row r begin at data + p * position + b * block + r *
/// lanes.
template <class T>
struct spectrum {
    T* data;
    index_t position, block;

    /// Elements between positions: one line more than the tiles need, so that the lines which a transform writes at
    /// once do not all fall into one set of the cache.
    static index_t position_stride(index_t rows, index_t blocks) { return (rows * blocks + 1) * lanes<T>; }
    static index_t elements(index_t positions, index_t rows, index_t blocks) {
        return positions * position_stride(rows, blocks);
    }
    static spectrum at(T* data, index_t rows, index_t blocks) {
        return {data, position_stride(rows, blocks), rows * lanes<T>};
    }
};

/// The columns of a batch: tile (row, column) of every image.
struct tiling {
    index_t images, down, across;
    static tiling of(const conv_geometry& g, index_t m) { return {g.n, ceil_div(g.out[1], m), ceil_div(g.out[2], m)}; }
    index_t columns() const { return images * down * across; }
};

/// A block of columns [first, first + columns) and `depths` output depths from `depth` on.
struct block {
    index_t first, columns, depth, depths;
    index_t rows() const { return columns * depths; }
    index_t input_rows(index_t kernel_depth) const { return columns * (depths + kernel_depth - 1); }
};

/// Pointers to the Size x Size pixels of one tile.
template <int Size, class T>
using tile_pixels = std::array<T*, std::size_t(Size* Size)>;

/// Finds the pixels of row `r` of a block whose row 0 is at depth `first_depth`; those outside the image are `outside`.
template <int M, int Size, class T>
void locate(tile_pixels<Size, T>& pixel, const images<T>& x, const tiling& tiles, const block& b, index_t r,
            index_t first_depth, index_t pad_h, index_t pad_w, T* outside) {
    const index_t column = b.first + r % b.columns, depth = first_depth + r / b.columns;
    const index_t n = column / (tiles.down * tiles.across), place = column % (tiles.down * tiles.across);
    const index_t h0 = place / tiles.across * M - pad_h, w0 = place % tiles.across * M - pad_w;
    const bool depth_inside = depth >= 0 && depth < x.depth;
    for (index_t i = 0; i < Size; ++i) {
        const bool row_inside = depth_inside && h0 + i >= 0 && h0 + i < x.height;
        T* const row = x.data + (((n * x.depth + depth) * x.height + h0 + i) * x.width + w0) * x.channels;
        for (index_t j = 0; j < Size; ++j) {
            const bool inside = row_inside && w0 + j >= 0 && w0 + j < x.width;
            pixel[std::size_t(i * Size + j)] = inside ? row + j * x.channels : outside;
        }
    }
}

/// Reads Size x Size pixels a tile and writes the transformed tiles of rows [begin, end). Row 0 is at depth
/// `first_depth`; `zeros` holds the channels of a pixel outside the image. The pixels of a later tile are fetched
/// ahead: a tile is Size short runs of memory, too irregular for the hardware to foresee.
template <int M, int Size, class I, class T, class Transform>
void transform_tiles(const images<const I>& x, const tiling& tiles, const block& b, index_t first_depth, index_t pad_h,
                     index_t pad_w, index_t begin, index_t end, const I* zeros, const spectrum<T>& out,
                     Transform transform) {
    constexpr index_t w = lanes<T>;
    constexpr int p = M + 2;
    const index_t blocks = ceil_div(x.channels, w), position = out.position;
    constexpr index_t most_ahead = 4;
    const index_t ahead = std::clamp<index_t>(most_ahead / blocks, 1, most_ahead);
    tile_pixels<Size, const I> ring[most_ahead + 1];
    const auto find = [&](index_t r) {
        locate<M, Size>(ring[r % (ahead + 1)], x, tiles, b, std::min(r, end - 1), first_depth, pad_h, pad_w, zeros);
    };
    for (index_t r = begin; r < begin + ahead; ++r) find(r);
    for (index_t r = begin; r < end; ++r) {
        find(r + ahead);
        const tile_pixels<Size, const I>&pixel = ring[r % (ahead + 1)], &next = ring[(r + ahead) % (ahead + 1)];
        for (index_t c = 0; c < blocks; ++c) {
            // Neighbours share Size - M lines of pixels: only the new ones are fetched.
            for (int i = Size - M; i < Size; ++i)
                for (int j = Size - M; j < Size; ++j) __builtin_prefetch(next[std::size_t(i * Size + j)] + c * w);
            T* const place = out.data + r * w + c * out.block;
            const auto write = [&](int i, int j, const vec<T>& v) { store(place + (i * p + j) * position, v); };
            const index_t left = x.channels - c * w;
            if (left >= w)
                both_axes<Size, p, T>(
                    transform, [&](int i, int j) { return load(pixel[std::size_t(i * Size + j)] + c * w); }, write);
            else
                both_axes<Size, p, T>(
                    transform, [&](int i, int j) { return load(pixel[std::size_t(i * Size + j)] + c * w, left); },
                    write);
        }
    }
}

/// Y = A^T M A + bias for every row of block b, written to the pixels of y that exist, past the caches if `streamed`
/// (then y's pixels must be whole vectors on vector boundaries). `bias` may be null.
template <int M, class I, class T>
void collect_tiles(const spectrum<T>& in, const images<I>& y, const tiling& tiles, const block& b, index_t first_block,
                   index_t blocks, const I* bias, bool streamed) {
    constexpr index_t w = lanes<T>;
    constexpr int p = M + 2;
    const index_t position = in.position;
    tile_pixels<M, I> pixel;
    for (index_t r = 0; r < b.rows(); ++r) {
        locate<M, M>(pixel, y, tiles, b, r, b.depth, 0, 0, static_cast<I*>(nullptr));
        for (index_t c = 0; c < blocks; ++c) {
            const T* const place = in.data + c * in.block + r * w;
            const index_t channel = (first_block + c) * w, left = std::min(w, y.channels - channel);
            const vec<T> offset = bias ? load(bias + channel, left) : vec<T>{};
            both_axes<p, M, T>([](const auto& u, auto& v) { collect_output<M, T>(u, v); },
                               [&](int i, int j) { return load(place + (i * p + j) * position); },
                               [&](int i, int j, const vec<T>& v) {
                                   I* const to = pixel[std::size_t(i * M + j)];
                                   if (!to) return;
                                   if (streamed)
                                       stream(to + channel, vec<T>(v + offset));
                                   else
                                       store(to + channel, vec<T>(v + offset), left);
                               });
        }
    }
    if (streamed) stream_end();
}

}  // namespace cairn::winograd
