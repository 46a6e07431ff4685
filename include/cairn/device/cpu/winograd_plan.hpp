#pragma once
// The blocks of a Winograd convolution and the workspace that they need.
//
// Arithmetic: 2 * (m + 2)^2 * rows * KD * c_in * c_out operations in the products, (m + 2)^2 / (9 m^2) of the direct
// ones: 1/4 for m = 4, 4/9 for m = 2. Transformed tiles are (m + 2)^2 / m^2 = 2.25 times (m = 4) the image, so they are
// made, used and collected block by block in the caches; a block of R rows reads all of U, 128 / R bytes a cycle at
// full product speed.

#include <algorithm>
#include <cairn/core/parallel.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/winograd_tiles.hpp>
#include <cstddef>

namespace cairn::winograd {

/// Calls body(task, thread) for every task; a thread that is done takes the next.
template <class Body>
void run_tasks(int threads, index_t tasks, Body body) {
    static_cast<void>(threads);
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (index_t task = 0; task < tasks; ++task) body(task, thread_number());
}

/// Parts `total` into equal pieces of at most `most`.
constexpr index_t even_piece(index_t total, index_t most) {
    return ceil_div(total, ceil_div(total, std::max<index_t>(most, 1)));
}

/// The forward problem whose result is the input gradient of g: dy is its input, rotated filters its weights.
constexpr conv_geometry input_gradient_geometry(const conv_geometry& g) {
    conv_geometry t = g;
    std::swap(t.in, t.out);
    std::swap(t.c_in, t.c_out);
    for (std::size_t axis = 0; axis < 3; ++axis) t.pad[axis] = g.kernel[axis] - 1 - g.pad[axis];
    return t;
}

/// Columns and depths of a block with about `rows` rows; the last block along each axis may be smaller.
struct block_shape {
    index_t columns, depths, count_columns, count_depths;

    static block_shape of(index_t columns, index_t depths, index_t kernel_depth, index_t rows) {
        // A block over several depths makes kernel_depth - 1 depths of input twice: from 8 depths on at most 25 %.
        block_shape s{};
        s.depths = kernel_depth == 1 ? 1 : even_piece(depths, std::max<index_t>(8, rows / columns));
        s.columns = even_piece(columns, rows / s.depths);
        s.count_columns = ceil_div(columns, s.columns);
        s.count_depths = ceil_div(depths, s.depths);
        return s;
    }
    index_t count() const { return count_columns * count_depths; }
    block at(index_t i, index_t all_columns, index_t all_depths) const {
        const index_t first = i % count_columns * columns, depth = i / count_columns * depths;
        return {first, std::min(columns, all_columns - first), depth, std::min(depths, all_depths - depth)};
    }
    index_t rows() const { return columns * depths; }
    index_t input_rows(index_t kernel_depth) const { return columns * (depths + kernel_depth - 1); }
};

/// Hands out pieces of the workspace, each on its own cache line. With a null start it only counts.
template <class T>
class carver {
public:
    explicit carver(void* start) : start_(static_cast<std::byte*>(start)) {}
    T* take(index_t elements) {
        T* const piece = start_ ? reinterpret_cast<T*>(start_ + used_) : nullptr;
        used_ += ceil_div(elements * index_t(sizeof(T)), 64) * 64;
        return piece;
    }
    index_t bytes() const { return used_; }

private:
    std::byte* start_;
    index_t used_ = 0;
};

/// Bytes of transformed tiles that a thread should keep in its own cache (L2, 1 MB on the machines we measured).
inline constexpr index_t block_bytes = 768 * 1024;

/// Shared by both directions: channel blocks of one vector, tiles and their cut.
template <class T>
struct plan_base {
    conv_geometry g;
    tiling tiles;
    index_t positions, blocks_in, blocks_out;
    block_shape shape{};

    plan_base(const conv_geometry& geometry, index_t m)
        : g(geometry),
          tiles(tiling::of(g, m)),
          positions((m + 2) * (m + 2)),
          blocks_in(ceil_div(g.c_in, lanes<T>)),
          blocks_out(ceil_div(g.c_out, lanes<T>)) {}

    void cut(index_t rows) { shape = block_shape::of(tiles.columns(), g.out[0], g.kernel[0], rows); }
    index_t count() const { return shape.count(); }
    block at(index_t i) const { return shape.at(i, tiles.columns(), g.out[0]); }
    /// Rows whose transformed input and output fill a thread's cache.
    index_t rows_in_cache() const {
        return block_bytes / (positions * (blocks_in + blocks_out) * lanes<T> * index_t(sizeof(T)));
    }
    index_t input_elements() const {
        return padded(spectrum<T>::elements(positions, shape.input_rows(g.kernel[0]), blocks_in));
    }
    index_t output_elements(index_t blocks) const {
        return padded(spectrum<T>::elements(positions, shape.rows(), blocks));
    }
    static index_t padded(index_t elements) { return ceil_div(elements, lanes<T>) * lanes<T>; }
};

/// Forward (and input gradient, on its geometry). Two ways:
/// - kept: all filters are transformed first, then threads take blocks of tiles. U is read once a block, so it has to
///   stay in a shared cache.
/// - fused: for large U and few tiles. The tiles of a block are transformed first, then threads take groups of output
///   channels, and transform their filters a piece at a time, right before the products that use it: U never leaves L2.
template <class T>
struct forward_plan : plan_base<T> {
    static constexpr index_t group = 2;  // blocks of output channels that a fused task computes
    static constexpr index_t piece = 8;  // blocks of input channels whose filters it transforms at a time
    static constexpr index_t large_filters = index_t{8} << 20;

    bool fused;
    T *zeros, *filters, *tiles_in, *scratch;
    index_t scratch_elements, bytes;

    forward_plan(const conv_geometry& geometry, index_t m, int threads, void* workspace) : plan_base<T>(geometry, m) {
        fused = this->positions * filter_position() * index_t(sizeof(T)) > large_filters;
        this->cut(fused ? 192 : std::max<index_t>(this->rows_in_cache(), 28));
        carver<T> space(workspace);
        zeros = space.take(this->blocks_in * lanes<T>);
        filters = space.take(fused ? 0 : this->positions * filter_position());
        tiles_in = space.take(fused ? this->input_elements() : 0);
        scratch_elements = fused ? this->positions * piece_position() + this->output_elements(group)
                                 : this->input_elements() + this->output_elements(this->blocks_out);
        scratch = space.take(scratch_elements * threads);
        bytes = space.bytes();
    }
    index_t filter_block() const { return this->g.kernel[0] * this->blocks_in * lanes<T> * lanes<T>; }
    index_t filter_position() const { return this->blocks_out * filter_block() + lanes<T>; }
    static constexpr index_t piece_block() { return piece * lanes<T> * lanes<T>; }
    static constexpr index_t piece_position() { return group * piece_block() + lanes<T>; }
};

/// Sums of V^T Z for a rectangle of channel blocks: position p, kernel depth kd, input block i, output channel o begin
/// at data + p * position + kd * depth + i * block + o * lanes (a vector over the channels of block i).
template <class T>
struct filter_sums {
    T* data;
    index_t position, depth, block;

    static filter_sums at(T* data, index_t depths, index_t blocks_in, index_t blocks_out) {
        const index_t block = blocks_out * lanes<T> * lanes<T>, depth = blocks_in * block;
        return {data, depths * depth + lanes<T>, depth, block};
    }
    static index_t elements(index_t positions, index_t depths, index_t blocks_in, index_t blocks_out) {
        return positions * at(nullptr, depths, blocks_in, blocks_out).position;
    }
};

/// Weight gradient: sums over tiles, in an order that depends on the shape only, so bits do not depend on the threads.
/// - chunked: for few channels. Each chunk of tiles has its own sums in a thread's cache; they are added in order at
///   the end.
/// - joint: for many channels. All threads transform a block of tiles, then take squares of channels. When one block is
///   all, the sums of a square never leave its thread's cache.
template <class T>
struct weight_plan : plan_base<T> {
    static constexpr index_t square = 4;  // blocks of channels along either side of a joint task
    static constexpr index_t small_sums = index_t{5} << 18, all_sums = index_t{16} << 20;

    bool joint;
    index_t chunks;
    T *zeros, *sums, *scratch;
    index_t sum_elements;  // of one chunk or square
    index_t scratch_elements, bytes;

    weight_plan(const conv_geometry& geometry, index_t m, int threads, void* workspace) : plan_base<T>(geometry, m) {
        const auto elements = [&](index_t in, index_t out) {
            return filter_sums<T>::elements(this->positions, this->g.kernel[0], in, out);
        };
        const index_t sum_bytes = elements(this->blocks_in, this->blocks_out) * index_t(sizeof(T));
        joint = sum_bytes > small_sums;
        this->cut(std::max<index_t>(this->rows_in_cache(), 128));
        chunks = joint ? 1 : std::clamp<index_t>(all_sums / sum_bytes, 1, std::min<index_t>(16, this->count()));
        sum_elements = joint ? elements(square, square) : elements(this->blocks_in, this->blocks_out);
        carver<T> space(workspace);
        zeros = space.take(std::max(this->blocks_in, this->blocks_out) * lanes<T>);
        sums = space.take(sum_elements * (!joint ? chunks : local_sums() ? threads : squares()));
        scratch_elements = this->input_elements() + this->output_elements(this->blocks_out);
        scratch = space.take(scratch_elements * (joint ? 1 : threads));
        bytes = space.bytes();
    }
    index_t squares_across() const { return ceil_div(this->blocks_in, square); }
    index_t squares() const { return squares_across() * ceil_div(this->blocks_out, square); }
    bool local_sums() const { return this->count() == 1; }
};

}  // namespace cairn::winograd
