#pragma once
// Lab 7, task 4: halos of a volume whose depth and height are cut. Ranks form a grid: rank = row · columns + column; a
// row of ranks shares a part of the depth, a column a part of the height.

#include "arrays.hpp"

#include <stdexcept>
#include <vector>

namespace student {

struct grid {
    int rows = 1, columns = 1;  // parts of the depth, parts of the height; rows · columns = c.size()
};

//! solution
namespace halos {

enum class axis { depth, height };

/// The rows [begin, begin + count) of an axis.
inline volume slab(const volume& v, axis a, std::size_t begin, std::size_t count) {
    const bool d = a == axis::depth;
    volume part(v.channels, d ? count : v.depth, d ? v.height : count, v.width);
    for (std::size_t c = 0; c < part.channels; ++c)
        for (std::size_t i = 0; i < part.depth; ++i)
            for (std::size_t j = 0; j < part.height; ++j)
                for (std::size_t w = 0; w < part.width; ++w)
                    part(c, i, j, w) = v(c, i + (d ? begin : 0), j + (d ? 0 : begin), w);
    return part;
}
/// Adds `part` to the rows from `begin` on.
inline void add(volume& v, axis a, std::size_t begin, const volume& part) {
    const bool d = a == axis::depth;
    for (std::size_t c = 0; c < part.channels; ++c)
        for (std::size_t i = 0; i < part.depth; ++i)
            for (std::size_t j = 0; j < part.height; ++j)
                for (std::size_t w = 0; w < part.width; ++w)
                    v(c, i + (d ? begin : 0), j + (d ? 0 : begin), w) += part(c, i, j, w);
}
inline std::size_t extent(const volume& v, axis a) { return a == axis::depth ? v.depth : v.height; }

/// This rank's neighbours along an axis, −1 where there is none.
struct neighbours {
    int lower = -1, upper = -1;
};
template <class C>
neighbours of(const C& c, const grid& g, axis a) {
    const int row = c.rank() / g.columns, column = c.rank() % g.columns;
    const int step = a == axis::depth ? g.columns : 1;
    const int at = a == axis::depth ? row : column, count = a == axis::depth ? g.rows : g.columns;
    return {at > 0 ? c.rank() - step : -1, at + 1 < count ? c.rank() + step : -1};
}

/// Sends `up` to the upper neighbour and `down` to the lower one; what comes from below and above replaces them.
template <class C>
void swap(C& c, const neighbours& n, volume& up, volume& down) {
    const auto shift = [&](const volume& out, int to, volume& in, int from, int tag) {
        const std::span<const double> sent(out.values);
        const std::span<double> room(in.values);
        if (to >= 0 && from >= 0)
            cairn::sendrecv(c, sent, to, room, from, tag);
        else if (to >= 0)
            cairn::send(c, sent, to, tag);
        else if (from >= 0)
            cairn::recv(c, room, from, tag);
    };
    const auto zeros = [](const volume& like) { return volume(like.channels, like.depth, like.height, like.width); };
    volume from_below = zeros(up), from_above = zeros(down);
    shift(up, n.upper, from_below, n.lower, 0);
    shift(down, n.lower, from_above, n.upper, 1);
    up = from_below, down = from_above;
}

}  // namespace halos

//! end
/// From this rank's block, channels × d × h × width, the block with `radius` rows more on each side of depth and of
/// height: those of the neighbours, corners included, zeros outside of the whole volume. Depth first, then height: a
/// message for each neighbour, at most four. Every block has at least `radius` rows each way.
template <class C>
volume with_halo(C& c, const grid& g, const volume& own, std::size_t radius) {
    //! solution
    volume now = own;
    for (const halos::axis a : {halos::axis::depth, halos::axis::height}) {
        const std::size_t n = halos::extent(now, a);
        volume up = halos::slab(now, a, n - radius, radius), down = halos::slab(now, a, 0, radius);
        halos::swap(c, halos::of(c, g, a), up, down);
        const bool d = a == halos::axis::depth;
        volume larger(now.channels, now.depth + (d ? 2 * radius : 0), now.height + (d ? 0 : 2 * radius), now.width);
        halos::add(larger, a, 0, up);
        halos::add(larger, a, radius, now);
        halos::add(larger, a, radius + n, down);
        now = larger;
    }
    return now;
    //! starter
    // (void)c, (void)g, (void)own, (void)radius;
    // throw std::logic_error("task 4: with_halo is not written yet");
    //! end
}

/// The adjoint: from gradients of the block with halo, those of this rank's block. Gradients of a neighbour's rows go
/// to the neighbour, which adds them to its own; those of zeros outside are dropped. As many messages and bytes as
/// with_halo.
template <class C>
volume add_halo(C& c, const grid& g, const volume& extended, std::size_t radius) {
    //! solution
    volume now = extended;
    for (const halos::axis a : {halos::axis::height, halos::axis::depth}) {
        const std::size_t n = halos::extent(now, a) - 2 * radius;
        volume up = halos::slab(now, a, radius + n, radius), down = halos::slab(now, a, 0, radius);
        halos::swap(c, halos::of(c, g, a), up, down);
        now = halos::slab(now, a, radius, n);
        halos::add(now, a, 0, up);
        halos::add(now, a, n - radius, down);
    }
    return now;
    //! starter
    // (void)c, (void)g, (void)extended, (void)radius;
    // throw std::logic_error("task 4: add_halo is not written yet");
    //! end
}

}  // namespace student
