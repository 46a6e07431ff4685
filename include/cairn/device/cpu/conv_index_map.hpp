#pragma once
// Which input points meet which output points: the bookkeeping of conv_tiled.hpp.
//
// Both the forward pass and the input gradient are correlations of a source array with taps: along one axis,
//   result(first + j step)  needs  source(j source_step + offset_t) · w(k_t),  j = 0 … count − 1, t over the taps
// Forward is one lattice: step 1, source_step = stride, offset = k dilation − pad. The input gradient with stride s is
// s of them, one for each remainder r of the position: step s, source_step 1, and the taps with s | r + pad − k
// dilation.
//
// A block of result rows reads a block of source rows, the slab. Where padding or groups are in the way, the slab is
// copied into a cache-sized buffer with the zeros in place; else it is the source itself.

#include <cairn/core/tensor.hpp>
#include <cairn/device/conv_geometry.hpp>

#include <algorithm>
#include <array>
#include <vector>

namespace cairn::tiled {

struct tap {
    index_t k, offset;
};

/// One axis of a correlation.
struct lattice {
    index_t count, first, step, source_step;
    std::vector<tap> taps;  // by ascending offset
};

using lattices = std::array<lattice, 3>;

inline lattice forward_lattice(const conv_geometry& g, std::size_t axis) {
    lattice l{g.out[axis], 0, 1, g.stride[axis], {}};
    for (index_t k = 0; k < g.kernel[axis]; ++k) l.taps.push_back({k, k * g.dilation[axis] - g.pad[axis]});
    return l;
}

/// The positions of the input with remainder r, modulo the stride.
inline lattice gradient_lattice(const conv_geometry& g, std::size_t axis, index_t r) {
    const index_t s = g.stride[axis];
    lattice l{(g.in[axis] - r + s - 1) / s, r, s, 1, {}};
    for (index_t k = g.kernel[axis]; k-- > 0;)
        if (const index_t scaled = r + g.pad[axis] - k * g.dilation[axis]; scaled % s == 0)
            l.taps.push_back({k, scaled / s});
    return l;
}

/// An array (images, size…, channels) of which `used` channels from `channel` on are looked at.
template <class T>
struct grid {
    T* data;
    index_t images;
    std::array<index_t, 3> size;
    index_t channels, channel, used;
};

/// Result rows [row_begin, row_end) of planes [plane_begin, plane_end), planes counted over images and depth.
struct row_block {
    index_t plane_begin, plane_end, row_begin, row_end;
};

/// Cuts the rows of a result into blocks of about `points` points.
struct row_blocks {
    row_blocks(const lattices& l, index_t images, index_t points) : planes(images * l[0].count), rows(l[1].count) {
        const index_t plane = l[1].count * l[2].count;
        if (2 * points <= plane) {
            const index_t parts = plane / points;
            rows_each = (rows + parts - 1) / parts;
        } else {
            rows_each = rows;
            planes_each = std::clamp<index_t>(points / std::max<index_t>(plane, 1), 1, planes);
        }
        across = (rows + rows_each - 1) / rows_each;
    }
    index_t count() const { return (planes + planes_each - 1) / planes_each * across; }
    row_block operator[](index_t i) const {
        const index_t p = i / across * planes_each, r = i % across * rows_each;
        return {p, std::min(p + planes_each, planes), r, std::min(r + rows_each, rows)};
    }
    index_t planes, rows, planes_each = 1, rows_each = 1, across = 1;
};

/// The source rows that a block of result rows reads.
template <class T>
class slab {
public:
    /// `spare` elements behind the last row may be read.
    slab(const lattices& l, const grid<const T>& source, index_t spare)
        : l_(l),
          source_(source),
          low_(l[2].taps.empty() ? 0 : l[2].taps.front().offset),
          width_(l[2].taps.empty() ? 0 : (l[2].count - 1) * l[2].source_step + l[2].taps.back().offset - low_ + 1),
          spare_(spare),
          direct_(spare == 0 && low_ >= 0 && low_ + width_ <= source.size[2] && source.used == source.channels) {}

    /// Elements of the room that the largest of these blocks needs.
    index_t most(const row_blocks& parts) {
        index_t most = 0;
        for (index_t i = 0; i < parts.count() && !direct_; ++i) {
            const auto planes = cover(parts[i]);
            most = std::max(most, (planes[1] - planes[0]) * plane_stride_ + spare_);
        }
        return most;
    }

    /// Moves to another block; copies its rows to `room` unless they can be read in place.
    void load(const row_block& block, T* room) {
        const auto planes = cover(block);
        const index_t line = source_.size[2] * source_.channels;
        if (direct_) {
            base_ = source_.data + first_plane_ * plane_stride_ + low_row_ * line + low_ * source_.channels;
            return;
        }
        base_ = room;
        // Columns [left, right) of the slab lie inside the source.
        const index_t left = std::clamp<index_t>(-low_, 0, width_),
                      right = std::clamp<index_t>(source_.size[2] - low_, left, width_);
        T* to = room;
        for (index_t plane = planes[0]; plane < planes[1]; ++plane)
            for (index_t row = low_row_; row < high_row_; ++row, to += row_stride_) {
                const T* from = source_.data + (plane * source_.size[1] + row) * line + source_.channel;
                std::fill(to, to + left * source_.used, T{});
                std::fill(to + right * source_.used, to + row_stride_, T{});
                if (source_.used == source_.channels)
                    std::copy(from + (low_ + left) * source_.channels, from + (low_ + right) * source_.channels,
                              to + left * source_.used);
                else
                    for (index_t x = left; x < right; ++x)
                        std::copy_n(from + (low_ + x) * source_.channels, source_.used, to + x * source_.used);
            }
        std::fill_n(to, spare_, T{});
    }

    const T* base() const { return base_; }

    /// Offset from base() of what tap (d, h) reads for a row of the result, at column offset `column` of the source; −1
    /// where that row is padding.
    index_t at(index_t plane, index_t row, const tap& d, const tap& h, index_t column) const {
        const index_t image = plane / l_[0].count;
        const index_t z = plane % l_[0].count * l_[0].source_step + d.offset, y = row * l_[1].source_step + h.offset;
        if (z < 0 || z >= source_.size[0] || y < 0 || y >= source_.size[1]) return -1;
        return (image * source_.size[0] + z - first_plane_) * plane_stride_ + (y - low_row_) * row_stride_ +
               (column - low_) * source_.used;
    }

private:
    // Sets planes, rows and strides for a block; its first and last + 1 plane of the source.
    std::array<index_t, 2> cover(const row_block& block) {
        const auto planes = source_planes(block);
        first_plane_ = planes[0];
        const lattice& l = l_[1];
        low_row_ = high_row_ = 0;
        if (!l.taps.empty()) {
            low_row_ = std::clamp<index_t>(block.row_begin * l.source_step + l.taps.front().offset, 0, source_.size[1]);
            high_row_ = std::clamp<index_t>((block.row_end - 1) * l.source_step + l.taps.back().offset + 1, low_row_,
                                            source_.size[1]);
        }
        row_stride_ = direct_ ? source_.size[2] * source_.channels : width_ * source_.used;
        plane_stride_ = (direct_ ? source_.size[1] : high_row_ - low_row_) * row_stride_;
        return planes;
    }
    // First and last + 1 plane of the source.
    std::array<index_t, 2> source_planes(const row_block& b) const {
        const lattice& l = l_[0];
        if (l.taps.empty()) return {0, 0};
        const auto plane = [&](index_t p, index_t offset) {
            return p / l.count * source_.size[0] +
                   std::clamp<index_t>(p % l.count * l.source_step + offset, 0, source_.size[0] - 1);
        };
        return {plane(b.plane_begin, l.taps.front().offset), plane(b.plane_end - 1, l.taps.back().offset) + 1};
    }

    const lattices& l_;
    grid<const T> source_;
    index_t low_, width_, spare_;
    bool direct_;
    const T* base_ = nullptr;
    index_t first_plane_ = 0, low_row_ = 0, high_row_ = 0, row_stride_ = 0, plane_stride_ = 0;
};

/// Taps of the last axis whose source points follow each other, so that they and their channels are one stretch of
/// memory.
struct run {
    index_t offset;        // of the first one in the source
    index_t first, count;  // in the list of taps
};

inline std::vector<run> runs_of(const lattice& l) {
    std::vector<run> runs;
    for (index_t t = 0; t < static_cast<index_t>(l.taps.size()); ++t) {
        const index_t offset = l.taps[static_cast<std::size_t>(t)].offset;
        if (!runs.empty() && offset == runs.back().offset + runs.back().count)
            ++runs.back().count;
        else
            runs.push_back({offset, t, 1});
    }
    return runs;
}

}  // namespace cairn::tiled
