#pragma once
// Lookup in a table (entries, width) on a grid device: same names and results as device/cpu/embedding.hpp. Backward
// gives each block a range of entries: it looks through all ids, in order, and adds the rows of its own, so that there
// are no atomics and one order of summation. Ids out of range cannot throw here: their y is NaN, and they add nothing.

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

template <class T>
struct embedding_backward_kernel {
    index_t rows, width;
    range here;
    const std::int32_t* ids;
    const T* dy;
    T* dtable;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t first = here.count * b.block() / b.blocks(), last = here.count * (b.block() + 1) / b.blocks();
        std::int32_t* const seen = b.template shared<std::int32_t>();
        for (index_t from = 0; from < rows; from += b.threads()) {
            if (from + b.thread() < rows) seen[b.thread()] = ids[from + b.thread()];
            b.sync();
            const index_t count = rows - from < b.threads() ? rows - from : index_t{b.threads()};
            for (index_t k = 0; k < count; ++k) {
                const index_t id = seen[k] - here.begin;
                if (id < first || id >= last) continue;
                for (index_t c = b.thread(); c < width; c += b.threads())
                    dtable[id * width + c] = static_cast<T>(static_cast<sum_type<T>>(dtable[id * width + c]) +
                                                            static_cast<sum_type<T>>(dy[(from + k) * width + c]));
            }
            b.sync();
        }
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
template <class T, GridDevice D>
void embedding_backward(D, index_t rows, array_part entries, index_t width, const std::int32_t* ids, const T* dy,
                        T* dtable) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    flop_counter::count(n, 3 * n * sizeof(T));
    constexpr int threads = 128;
    if (n > 0)
        D::launch({.blocks = std::min<index_t>(entries.here.count, 4 * D::multiprocessors()),
                   .threads = threads,
                   .shared = threads * index_t{sizeof(std::int32_t)}},
                  grid::embedding_backward_kernel<T>{rows, width, entries.here, ids, dy, dtable});
}

}  // namespace cairn
