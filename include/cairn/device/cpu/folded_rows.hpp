#pragma once
// A row-major matrix (rows, columns) seen as fewer, longer rows, so that whole packs cover a row whatever the number of
// columns:
//   period = fold × columns, the least multiple of a pack's lanes that is at least eight packs long;  fold ≤ 128
// Element i of a long row belongs to column i % columns. What is left over, fewer than `fold` rows, is one shorter row
// at the end. Work is cut into chunks of long rows by size alone, so that partial results do not depend on the number
// of threads.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/cpu/simd_bfloat16.hpp>

#include <numeric>

namespace cairn {

struct folded_rows {
    index_t columns = 0;
    index_t fold = 0;    // rows in a long row
    index_t period = 0;  // elements of a long row
    index_t count = 0;   // long rows
    index_t rest = 0;    // elements after them
    index_t grain = 0;   // long rows of a chunk
    index_t chunks = 0;

    template <class T>
    static folded_rows of(index_t rows, index_t columns) {
        folded_rows l;
        l.columns = columns;
        constexpr index_t lanes = simd::lanes<T>;
        l.fold = lanes / std::gcd(columns, lanes);
        while (l.fold * columns < 8 * lanes) l.fold *= 2;
        l.period = l.fold * columns;
        l.count = rows / l.fold;
        l.rest = (rows - l.count * l.fold) * columns;
        // 256 KiB stay in the second-level cache; more than 512 chunks cost more to merge than they balance.
        const index_t bytes = l.period * static_cast<index_t>(sizeof(T));
        l.grain = std::max<index_t>({1, (index_t{1} << 18) / bytes, (l.count + 511) / 512});
        l.chunks = (l.count + l.grain - 1) / l.grain;
        return l;
    }

    index_t elements() const { return count * period + rest; }

    /// Calls body(chunk, first long row, last long row + 1), each thread from its last chunk to its first. Of two
    /// passes over an array that does not fit the cache, one backward and one forward, the second finds what the first
    /// read last.
    template <class Body>
    void backward(Body&& body) const {
        const index_t teams = std::min<index_t>(threads(), chunks);
        parallel_chunks(teams, 1, [&](index_t team, index_t, index_t) {
            for (index_t chunk = chunks * (team + 1) / teams; chunk-- > chunks * team / teams;)
                body(chunk, chunk * grain, std::min(count, (chunk + 1) * grain));
        });
    }

    /// The same from first to last.
    template <class Body>
    void forward(Body&& body) const {
        parallel_chunks(count, grain, body);
    }

    /// Values per column repeated along a long row.
    template <class T, class Value>
    void repeat(Value&& value, T* out) const {
        if (on_phantom_rank()) return;
        for (index_t c = 0; c < columns; ++c) out[c] = static_cast<T>(value(c));
        for (index_t i = columns; i < period; ++i) out[i] = out[i - columns];
    }
};

}  // namespace cairn
