#pragma once
// Lookup in a table (entries, width) on a grid device: same names and results as device/cpu/embedding.hpp. Backward
// gives each block a range of entries and a part of the rows: it looks through their ids, in order, and adds its own
// rows, so that there are no atomics and one order of summation. Where entries are few, so that each has many rows, the
// rows have several parts, whose tables are added. Ids out of range cannot throw here: their y is NaN, and they add
// nothing.
// Bytes of backward: dy, the entries that occur read and written for each of their rows, a quarter of dy for the parts.

#include <cairn/core/range.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cstdint>
#include <limits>

namespace cairn {

namespace grid {

template <int Lanes, class T>
struct embedding_forward_kernel {
    index_t entries, width;
    range here;
    const std::int32_t* ids;
    const T* table;
    T* y;

    CAIRN_HD void operator()(index_t i) const {
        using piece = packet<T, Lanes>;
        const index_t across = width / Lanes, row = quotient(i, across), id = ids[row];
        piece found;
        if (id >= here.begin && id < here.begin + here.count) {
            found = reinterpret_cast<const piece*>(table)[(id - here.begin) * across + i - row * across];
        } else {
            const bool elsewhere = id >= 0 && id < entries;
            for (int j = 0; j < Lanes; ++j)
                found.v[j] = static_cast<T>(elsewhere ? 0.0f : std::numeric_limits<float>::quiet_NaN());
        }
        reinterpret_cast<piece*>(y)[i] = found;
    }
};

/// table (parts, entries, width) += rows of dy, of each part of the rows; a block has a part and a range of entries.
template <int Lanes, class T, class W>
struct embedding_backward_kernel {
    static constexpr int threads = 128;

    index_t rows, width, parts;
    range here;
    const std::int32_t* ids;
    const T* dy;
    W* table;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t ranges = b.blocks() / parts, part = b.block() / ranges, mine = b.block() % ranges;
        const index_t first = here.begin + here.count * mine / ranges,
                      last = here.begin + here.count * (mine + 1) / ranges;
        int* const found = b.template shared<int>();  // which of the rows at hand have an entry of this block, in order
        for (index_t from = rows * part / parts, end = rows * (part + 1) / parts; from < end; from += threads) {
            const index_t row = from + b.thread(), id = row < end ? ids[row] : -1;
            int count = 0;
            const int place = sum_before(b, id >= first && id < last ? 1 : 0, found + threads, count);
            if (id >= first && id < last) found[place] = static_cast<int>(b.thread());
            b.sync();
            for (index_t c = b.thread() * Lanes; c < width; c += threads * Lanes)
                for (int k = 0; k < count; k += 4) {
                    packet<T, Lanes> v[4];
                    CAIRN_UNROLL
                    for (int u = 0; u < 4; ++u)
                        if (k + u < count)
                            v[u] = *reinterpret_cast<const packet<T, Lanes>*>(dy + (from + found[k + u]) * width + c);
                    CAIRN_UNROLL
                    for (int u = 0; u < 4; ++u)
                        if (k + u < count) add(part * here.count + ids[from + found[k + u]] - here.begin, c, v[u]);
                }
        }
    }

    CAIRN_HD void add(index_t entry, index_t c, const packet<T, Lanes>& v) const {
        auto& to = *reinterpret_cast<packet<W, Lanes>*>(table + entry * width + c);
        packet<W, Lanes> sum = to;
        for (int j = 0; j < Lanes; ++j) sum.v[j] += static_cast<W>(v.v[j]);
        to = sum;
    }
};

/// table[i] += Σ over the parts of of_part (parts, n).
template <class W>
struct add_parts {
    index_t n, parts;
    const W* of_part;
    W* table;
    CAIRN_HD void operator()(index_t i) const {
        W sum = of_part[i];
        for (index_t p = 1; p < parts; ++p) sum += of_part[p * n + i];
        table[i] += sum;
    }
};

}  // namespace grid

/// y (rows, width) from ids (rows). `table` (entries.here, width).
template <class T, GridDevice D>
void embedding_forward(D d, index_t rows, array_part entries, index_t width, const std::int32_t* ids, const T* table,
                       T* y) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    flop_counter::count(0, 2 * n * sizeof(T));
    if (n > 0)
        grid::in_lanes(width, grid::packets_fit(table, y), [&]<int Lanes>(grid::lane_count<Lanes>) {
            grid::for_indices(
                d, rows * (width / Lanes),
                grid::embedding_forward_kernel<Lanes, T>{entries.all, width, entries.here, ids, table, y});
        });
}

/// dtable (entries.here, width) += dy (rows, width) by ids (rows).
template <class T, class W, GridDevice D>
void embedding_backward(D d, index_t rows, array_part entries, index_t width, const std::int32_t* ids, const T* dy,
                        W* dtable) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    flop_counter::count(n, n * (sizeof(T) + 2 * sizeof(W)));
    const index_t table = entries.here.count * width;
    if (rows * table == 0) return;
    // The same on every card, and for a table whose entries are shared by several.
    const index_t parts = std::clamp<index_t>(rows / (4 * entries.all), 1, 16),
                  ranges = std::clamp<index_t>(D::multiprocessors() * 16 / parts, 1, entries.here.count);
    tensor<W, D> of_part;
    if (parts > 1) of_part = tensor<W, D>::zeros({parts, table}, memory_category::workspace);
    W* const to = parts > 1 ? of_part.data() : dtable;
    grid::in_lanes(width, grid::packets_fit(dy, to), [&]<int Lanes>(grid::lane_count<Lanes>) {
        using kernel = grid::embedding_backward_kernel<Lanes, T, W>;
        D::launch({.blocks = ranges * parts,
                   .threads = kernel::threads,
                   .shared = (kernel::threads + kernel::threads / warp_threads) * index_t{sizeof(int)}},
                  kernel{rows, width, parts, entries.here, ids, dy, to});
    });
    if (parts > 1) grid::for_indices(d, table, grid::add_parts<W>{table, parts, of_part.data(), dtable});
}

}  // namespace cairn
