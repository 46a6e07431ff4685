#pragma once
// Operations on each row of a matrix on a grid device; same names and meaning as device/cpu/rows.hpp.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/channels.hpp>

#include <cstdint>

namespace cairn {

namespace grid {

template <class T>
struct argmax_of_rows {
    index_t columns;
    const T* x;
    std::int32_t* out;

    // One thread a row: rows are short (classes), reads go through the cache.
    CAIRN_HD void operator()(index_t r) const {
        const T* const row = x + r * columns;
        index_t best = 0;
        for (index_t c = 1; c < columns && row[best] == row[best]; ++c)
            if (!(row[c] <= row[best])) best = c;
        out[r] = static_cast<std::int32_t>(best);
    }
};

/// Bytes: a read and written in packets of eight; a thread keeps its part of v.
template <class T>
struct add_to_rows_op {
    const T* v;
    T* a;

    struct coefficients {
        T added[packet_lanes];
        CAIRN_HD void set(int j, index_t c, const add_to_rows_op& op) { added[j] = op.v[c]; }
        CAIRN_HD void set_all(index_t c, const add_to_rows_op& op) { load_eight(op.v + c, added); }
    };

    static constexpr int ahead = packets_ahead<T>(1);
    using loaded = packet<T, packet_lanes>;
    CAIRN_HD loaded load(index_t at, bool whole, int count) const {
        loaded p;
        load_packet(a + at, whole, count, p.v);
        return p;
    }

    CAIRN_HD void store(index_t at, bool whole, int count, loaded p, const coefficients& c) const {
        for (int j = 0; j < packet_lanes; ++j)
            p.v[j] = static_cast<T>(static_cast<sum_type<T>>(p.v[j]) + static_cast<sum_type<T>>(c.added[j]));
        store_packet(a + at, whole, count, p.v);
    }
};

/// add_to_rows without the count of a kernel by itself.
template <class T, GridDevice D>
void add_to_rows(D d, index_t rows, index_t columns, const T* v, T* a) {
    for_channels(d, rows, columns, packets_fit(a), add_to_rows_op<T>{v, a});
}

}  // namespace grid

/// out[r] = column of the largest element of row r, the first one of equals; a NaN counts as the largest.
template <class T, GridDevice D>
void argmax_rows(D d, index_t rows, index_t columns, const T* x, std::int32_t* out) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, n * sizeof(T));
    grid::for_indices(d, rows, grid::argmax_of_rows<T>{columns, x, out}, 128);
}

/// a (rows × columns) += v (columns) in each row.
template <class T, GridDevice D>
void add_to_rows(D d, index_t rows, index_t columns, const T* v, T* a) {
    const double n = static_cast<double>(rows) * static_cast<double>(columns);
    flop_counter::count(n, sizeof(T) * (2 * n + static_cast<double>(columns)));
    grid::add_to_rows(d, rows, columns, v, a);
}

}  // namespace cairn
