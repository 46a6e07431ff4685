#pragma once
// Lookup in a table (entries, width):  y[r] = table[ids[r]],   backward: dtable[e] += Σ of dy[r] over the rows r with
// ids[r] = e. Of a table whose entries `here` alone are in memory, ids of others give zeros and add nothing. Backward
// sorts the rows by entry (counting sort, stable) and gives each entry to one thread: no atomics, one order of
// summation on any number of threads. Memory traffic: forward y written and as much of the table read; backward dy
// read, the touched entries read and written, and 4 bytes an entry. Tested against plain loops.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/range.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/widen.hpp>

#include <algorithm>
#include <cstdint>

namespace cairn {

namespace detail {

inline index_t checked_id(const std::int32_t* ids, index_t row, index_t entries) {
    const index_t id = ids[row];
    require(id >= 0 && id < entries, "embedding: id ", id, " of row ", row, " is not in [0, ", entries, ')');
    return id;
}

inline index_t embedding_grain(index_t width) { return std::max<index_t>(1, 8192 / std::max<index_t>(width, 1)); }

}  // namespace detail

/// y (rows, width) from ids (rows). `table` (entries.here, width). Throws on an id out of range, naming row and id.
template <class T>
void embedding_forward(cpu, index_t rows, array_part entries, index_t width, const std::int32_t* ids, const T* table,
                       T* y) {
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    const kernel_call call("embedding forward", format_name<T>, 0, 2 * n * sizeof(T),
                           {rows, width, entries.here.count});
    parallel_for(rows, detail::embedding_grain(width), [=](index_t begin, index_t end) {
        for (index_t r = begin; r < end; ++r) {
            const index_t id = detail::checked_id(ids, r, entries.all) - entries.here.begin;
            if (id >= 0 && id < entries.here.count)
                std::copy_n(table + id * width, width, y + r * width);
            else
                std::fill_n(y + r * width, width, T(0));
        }
    });
}

/// dtable (entries.here, width) += dy (rows, width) by ids (rows). 1 flop per element of dy.
template <class T, class W>
void embedding_backward(cpu, index_t rows, array_part entries, index_t width, const std::int32_t* ids, const T* dy,
                        W* dtable) {
    const range here = entries.here;
    const double n = static_cast<double>(rows) * static_cast<double>(width);
    require(rows < (index_t{1} << 31), "embedding: ", rows, " rows; at most 2^31 - 1 are possible");
    const kernel_call call("embedding backward", format_name<T>, n, n * (sizeof(T) + 2 * sizeof(W)),
                           {rows, width, here.count});
    // first[e] … first[e + 1]: the places in `order` of the rows of entry here.begin + e.
    auto first = tensor<std::int32_t>::zeros({here.count + 1}, memory_category::workspace);
    tensor<std::int32_t> order({rows}, memory_category::workspace);
    if (on_phantom_rank()) return;
    const auto for_rows_here = [&](auto&& f) {
        for (index_t r = 0; r < rows; ++r)
            if (const index_t e = detail::checked_id(ids, r, entries.all) - here.begin; e >= 0 && e < here.count)
                f(r, e);
    };
    for_rows_here([&](index_t, index_t e) { ++first[e + 1]; });
    for (index_t e = 0; e < here.count; ++e) first[e + 1] += first[e];
    const index_t found = first[here.count];
    for_rows_here([&](index_t r, index_t e) { order[first[e]++] = static_cast<std::int32_t>(r); });
    // Now first[e] is the end of entry e. Chunks of places; a chunk works on the entries that begin in it.
    const std::int32_t* const place = order.data();
    parallel_for(found, detail::embedding_grain(width), [=](index_t begin, index_t end) {
        index_t at = begin;
        while (at < end && at > 0 && ids[place[at]] == ids[place[at - 1]]) ++at;  // belongs to the chunk before
        while (at < end) {
            const index_t entry = ids[place[at]];
            W* const sum = dtable + (entry - here.begin) * width;
            for (; at < found && ids[place[at]] == entry; ++at) {
                const T* const row = dy + place[at] * width;
#pragma omp simd
                for (index_t c = 0; c < width; ++c) sum[c] += row[c];
            }
        }
    });
}

}  // namespace cairn
