#pragma once
// A few values of an array on a grid device (device/selection.hpp). The k values of largest magnitude, exactly, of
// equal ones the first: by three histograms of 11, 10 and 10 bits of all values, and one pass that counts and one that
// writes, so that positions rise. Bytes a value: 5 reads of 4. Nothing waits, nothing is allocated after prepare, and
// how many values are equal does not matter.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/random_places.hpp>
#include <cairn/device/selection.hpp>

namespace cairn {

namespace grid {

inline constexpr int select_threads = 256;
// values of a thread, of a block
inline constexpr index_t select_each = 16, select_chunk = select_threads * select_each;
inline constexpr index_t select_bins = 2048;

/// The kth magnitude so far: its upper bits, and its rank among values that share them.
struct magnitude_search {
    std::uint32_t prefix, rank;
};

/// bins[the `bits` bits above `shift`] += 1 for each value whose bits above those are the prefix.
struct count_magnitudes {
    index_t n;
    const float* x;
    const magnitude_search* search;
    int shift, bits;
    std::uint32_t* bins;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        std::uint32_t* const own = b.template shared<std::uint32_t>();
        const int count = 1 << bits, first = static_cast<int>(b.thread()), step = static_cast<int>(b.threads());
        for (int i = first; i < count; i += step) own[i] = 0;
        b.sync();
        const std::uint32_t prefix = search->prefix, mask = static_cast<std::uint32_t>(count - 1);
        for (index_t i = b.block() * b.threads() + b.thread(); i < n; i += b.blocks() * b.threads()) {
            const std::uint32_t m = magnitude_bits(x[i]) >> shift;
            if (m >> bits == prefix) b.add(own + (m & mask), 1);
        }
        b.sync();
        for (int i = first; i < count; i += step)
            if (own[i]) b.add(bins + i, own[i]);
    }
};

/// The bin of the kth magnitude joins the prefix; the bins are zero again. One block.
struct take_bin {
    std::uint32_t* bins;
    int bits;
    magnitude_search* search;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        std::uint32_t* const sums = b.template shared<std::uint32_t>();
        const int each = (1 << bits) / select_threads, first = static_cast<int>(b.thread()) * each;
        std::uint32_t sum = 0;
        for (int i = 0; i < each; ++i) sum += bins[first + i];
        sums[b.thread()] = sum;
        b.sync();
        if (b.thread() == 0) {
            std::uint32_t rank = search->rank;
            int t = select_threads - 1;
            while (t > 0 && sums[t] < rank) rank -= sums[t--];
            int bin = (t + 1) * each - 1;
            while (bin > t * each && bins[bin] < rank) rank -= bins[bin--];
            search->prefix = search->prefix << bits | static_cast<std::uint32_t>(bin);
            search->rank = rank;
        }
        b.sync();
        for (int i = 0; i < each; ++i) bins[first + i] = 0;
    }
};

struct begin_search {
    magnitude_search* search;
    std::uint32_t k;
    CAIRN_HD void operator()(index_t) const { *search = {0, k}; }
};

/// How many values of a thread's run are above the threshold, and equal to it.
struct run_counts {
    std::uint32_t above = 0, equal = 0;

    CAIRN_HD void see(float x, std::uint32_t threshold) {
        const std::uint32_t m = magnitude_bits(x);
        above += m > threshold;
        equal += m == threshold;
    }
    CAIRN_HD static run_counts of(const float* x, index_t begin, index_t end, std::uint32_t threshold) {
        run_counts c;
        for (index_t i = begin; i < end; ++i) c.see(x[i], threshold);
        return c;
    }
};

CAIRN_HD inline index_t first_of_run(index_t chunk, index_t thread) {
    return chunk * select_chunk + thread * select_each;
}
CAIRN_HD inline index_t end_of_run(index_t first, index_t n) {
    return first + select_each < n ? first + select_each : n;
}

/// counts[chunk] of all runs of a chunk. A block a chunk.
struct count_chunk {
    index_t n;
    const float* x;
    const magnitude_search* search;
    run_counts* counts;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t first = first_of_run(b.block(), b.thread());
        const run_counts mine = run_counts::of(x, first, end_of_run(first, n), search->prefix);
        std::uint32_t* const scratch = b.template shared<std::uint32_t>();
        const std::uint32_t above = block_sum(b, mine.above, scratch), equal = block_sum(b, mine.equal, scratch);
        if (b.thread() == 0) counts[b.block()] = {above, equal};
    }
};

/// Σ over the threads before this one. Shared memory: a word a warp.
template <class Block>
CAIRN_HD run_counts counts_before(Block& b, run_counts mine) {
    auto* const room = b.template shared<std::uint32_t>();
    std::uint32_t all = 0;
    const std::uint32_t above = sum_before(b, mine.above, room, all), equal = sum_before(b, mine.equal, room, all);
    return {above, equal};
}

/// counts[chunk] becomes the sum of those before it. One block.
struct scan_chunks {
    index_t chunks;
    run_counts* counts;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t each = (chunks + select_threads - 1) / select_threads;
        const index_t begin = b.thread() * each, end = begin + each < chunks ? begin + each : chunks;
        run_counts mine;
        for (index_t i = begin; i < end; ++i) {
            mine.above += counts[i].above;
            mine.equal += counts[i].equal;
        }
        run_counts at = counts_before(b, mine);
        for (index_t i = begin; i < end; ++i) {
            const run_counts own = counts[i];
            counts[i] = at;
            at.above += own.above;
            at.equal += own.equal;
        }
    }
};

/// Writes the chosen values. A block a chunk.
struct write_chosen {
    index_t n;
    const float* x;
    const magnitude_search* search;
    const run_counts* before;
    std::uint32_t* positions;
    float* values;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t first = first_of_run(b.block(), b.thread()), end = end_of_run(first, n);
        const std::uint32_t threshold = search->prefix, ties = search->rank;
        run_counts at = counts_before(b, run_counts::of(x, first, end, threshold));
        at.above += before[b.block()].above;
        at.equal += before[b.block()].equal;
        for (index_t i = first; i < end; ++i) {
            const float v = x[i];
            const std::uint32_t m = magnitude_bits(v);
            if (m > threshold || (m == threshold && at.equal < ties)) {
                const std::uint32_t place = at.above + (at.equal < ties ? at.equal : ties);
                positions[place] = static_cast<std::uint32_t>(i);
                values[place] = v;
            }
            at.see(v, threshold);
        }
    }
};

struct narrow {
    CAIRN_HD void operator()(std::uint16_t& h, const float& v) const { h = bf16_format::nearest(v); }
};

template <class Value, class Put>
struct put_values {
    index_t n;
    const std::uint32_t* positions;
    const Value* values;
    float* into;
    Put put;

    CAIRN_HD static float wide(float v) { return v; }
    CAIRN_HD static float wide(std::uint16_t h) { return bf16_format::widen(h); }

    CAIRN_HD void operator()(index_t i) const {
        if (positions[i] < n) put(into[positions[i]], wide(values[i]));
    }
};

struct zero_values {
    const std::uint32_t* positions;
    float* x;

    CAIRN_HD void operator()(index_t i) const { x[positions[i]] = 0; }
};

}  // namespace grid

template <GridDevice D>
class selection<D> {
public:
    void prepare(index_t n, index_t most) {
        if (!bins.empty()) return;
        const auto room = [](index_t bytes) {
            return tensor<std::uint8_t, D>::zeros({bytes}, memory_category::communication);
        };
        positions = tensor<std::uint32_t, D>({most}, memory_category::communication);
        values = tensor<float, D>({most}, memory_category::communication);
        bins = room(grid::select_bins * 4);
        search = room(sizeof(grid::magnitude_search));
        counts =
            room((n + grid::select_chunk - 1) / grid::select_chunk * static_cast<index_t>(sizeof(grid::run_counts)));
    }
    index_t count() const { return k; }

    index_t k = 0;
    tensor<std::uint32_t, D> positions;
    tensor<float, D> values;
    tensor<std::uint8_t, D> bins, search, counts;  // of the search
};

/// The k largest of x, 0 ≤ k ≤ n < 2³².
template <GridDevice D>
void select_largest(D d, std::span<const float> values, index_t k, selection<D>& chosen) {
    const auto n = static_cast<index_t>(values.size());
    const index_t chunks = (n + grid::select_chunk - 1) / grid::select_chunk;
    const float* const x = values.data();
    chosen.k = k;
    if (k == 0) return;
    flop_counter::count(0, 20.0 * static_cast<double>(n) + 8.0 * static_cast<double>(k));
    auto* const bins = reinterpret_cast<std::uint32_t*>(chosen.bins.data());
    auto* const search = reinterpret_cast<grid::magnitude_search*>(chosen.search.data());
    auto* const counts = reinterpret_cast<grid::run_counts*>(chosen.counts.data());
    constexpr index_t of_counts = grid::select_threads / warp_threads * 4;
    grid::for_indices(d, 1, grid::begin_search{search, static_cast<std::uint32_t>(k)}, 32);
    int shift = 20;
    for (const int bits : {11, 10, 10}) {
        D::launch({.blocks = grid::blocks_for<D>(n, grid::select_threads, 16),
                   .threads = grid::select_threads,
                   .shared = grid::select_bins * 4},
                  grid::count_magnitudes{n, x, search, shift, bits, bins});
        D::launch({.blocks = 1, .threads = grid::select_threads, .shared = grid::select_threads * 4},
                  grid::take_bin{bins, bits, search});
        shift -= 10;
    }
    D::launch({.blocks = chunks, .threads = grid::select_threads, .shared = grid::select_threads * 4},
              grid::count_chunk{n, x, search, counts});
    D::launch({.blocks = 1, .threads = grid::select_threads, .shared = of_counts}, grid::scan_chunks{chunks, counts});
    D::launch({.blocks = chunks, .threads = grid::select_threads, .shared = of_counts},
              grid::write_chosen{n, x, search, counts, chosen.positions.data(), chosen.values.data()});
}

/// Exactly k: the histograms cost less than to ask how many a sampled threshold lets pass.
template <GridDevice D>
void select_sampled(D d, std::span<const float> x, index_t k, selection<D>& chosen) {
    select_largest(d, x, k, chosen);
}

template <GridDevice D>
void pack_values(D d, const selection<D>& chosen, sparse_value type, std::byte* out) {
    if (type == sparse_value::float32)
        D::copy_within(out, chosen.values.data(), 4 * chosen.k);
    else
        for_each(d, chosen.k, grid::narrow{}, reinterpret_cast<std::uint16_t*>(out), chosen.values.data());
}

template <GridDevice D, class Put>
void put_at_positions(D d, std::span<const std::uint32_t> positions, const std::byte* values, sparse_value type,
                      std::span<float> into, Put put) {
    const auto k = static_cast<index_t>(positions.size()), n = static_cast<index_t>(into.size());
    const auto run = [&](auto* typed) {
        using value = std::remove_const_t<std::remove_pointer_t<decltype(typed)>>;
        grid::launch_few(d, k, grid::put_values<value, Put>{n, positions.data(), typed, into.data(), put});
    };
    if (type == sparse_value::float32)
        run(reinterpret_cast<const float*>(values));
    else
        run(reinterpret_cast<const std::uint16_t*>(values));
}

template <GridDevice D>
void zero_at_positions(D d, const selection<D>& chosen, float* x) {
    grid::launch_few(d, chosen.k, grid::zero_values{chosen.positions.data(), x});
}

}  // namespace cairn
