#pragma once
// A few values of a bucket, found, sent and added on a grid device.
//   largest_values<D>     the k values of largest magnitude, exactly, of equal ones the first: select.hpp's, by three
//                         histograms of 11, 10 and 10 bits of all values, and one pass that counts and one that writes,
//                         so that positions rise
//   random_values         randomk's places, which all ranks know
// Message of largest_values:   | k positions, 4 bytes each | k values, 4 bytes each |
// 8 k bytes, where the host's code for positions (index_code.hpp) makes about 5 k of it: a gap's width depends on all
// gaps before it.
//
// Bytes a value: 5 reads of 4. Nothing waits, nothing is allocated after the constructor, and how many values are equal
// does not matter.

#include <cairn/compress/randomk.hpp>
#include <cairn/core/flop_counter.hpp>
#include <cairn/device/cuda/for_each.hpp>

#include <bit>

namespace cairn {

namespace grid {

inline constexpr int select_threads = 256;
// values of a thread, of a block
inline constexpr index_t select_each = 16, select_chunk = select_threads * select_each;
inline constexpr index_t select_bins = 2048;

CAIRN_HD inline std::uint32_t magnitude_bits(float x) { return std::bit_cast<std::uint32_t>(x) & 0x7fffffffu; }

/// What is known of the kth magnitude: its upper bits, and its rank among those which share them.
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
    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        if (b.thread() == 0) *search = {0, k};
    }
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

/// Σ over the threads before this one. `room`: select_threads of T.
template <class Block>
CAIRN_HD run_counts sum_before(Block& b, run_counts mine, run_counts* room) {
    const index_t t = b.thread();
    room[t] = mine;
    b.sync();
    for (index_t apart = 1; apart < select_threads; apart *= 2) {
        run_counts other;
        if (t >= apart) other = room[t - apart];
        b.sync();
        room[t].above += other.above;
        room[t].equal += other.equal;
        b.sync();
    }
    return {room[t].above - mine.above, room[t].equal - mine.equal};
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
        run_counts at = sum_before(b, mine, b.template shared<run_counts>());
        for (index_t i = begin; i < end; ++i) {
            const run_counts own = counts[i];
            counts[i] = at;
            at.above += own.above;
            at.equal += own.equal;
        }
    }
};

/// Writes what is chosen, and zeros in its place. A block a chunk.
struct write_chosen {
    index_t n;
    float* x;
    float* also;  // becomes zero too; may be null
    const magnitude_search* search;
    const run_counts* before;
    std::uint32_t* positions;
    float* values;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t first = first_of_run(b.block(), b.thread()), end = end_of_run(first, n);
        const std::uint32_t threshold = search->prefix, ties = search->rank;
        run_counts at = sum_before(b, run_counts::of(x, first, end, threshold), b.template shared<run_counts>());
        at.above += before[b.block()].above;
        at.equal += before[b.block()].equal;
        for (index_t i = first; i < end; ++i) {
            const float v = x[i];
            const std::uint32_t m = magnitude_bits(v);
            if (m > threshold || (m == threshold && at.equal < ties)) {
                const std::uint32_t place = at.above + (at.equal < ties ? at.equal : ties);
                positions[place] = static_cast<std::uint32_t>(i);
                values[place] = v;
                x[i] = 0;
                if (also) also[i] = 0;
            }
            at.see(v, threshold);
        }
    }
};

/// into[positions[i]] += values[i]; positions differ.
struct add_at_positions {
    index_t k, n;
    const std::uint32_t* positions;
    const float* values;
    float* into;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        for (index_t i = b.block() * b.threads() + b.thread(); i < k; i += b.blocks() * b.threads())
            if (positions[i] < n) into[positions[i]] += values[i];
    }
};

/// randomk's places: values[i] = x[place i], which becomes zero if `take`; or x[place i] = size of the stratum ·
/// values[i], 1 for its size unless `unbiased`.
struct random_places {
    index_t n, k;
    random_stream random;
    bool put, unbiased, take;
    float *x, *values;

    CAIRN_HD index_t begin_of(index_t i) const { return i * (n / k) + i * (n % k) / k; }

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        for (index_t i = b.block() * b.threads() + b.thread(); i < k; i += b.blocks() * b.threads()) {
            const std::uint64_t r = random.bits4(static_cast<std::uint64_t>(i / 4))[static_cast<std::size_t>(i % 4)];
            const index_t first = begin_of(i), size = begin_of(i + 1) - first;
            const index_t place = first + static_cast<index_t>((r * static_cast<std::uint64_t>(size)) >> 32);
            if (put) {
                x[place] = unbiased ? values[i] * static_cast<float>(size) : values[i];
            } else {
                values[i] = x[place];
                if (take) x[place] = 0;
            }
        }
    }
};

/// u = m u + g;  v += u
struct accumulate_velocity {
    float momentum;
    CAIRN_HD void operator()(const float& g, float& u, float& v) const {
        u = momentum * u + g;
        v += u;
    }
};

}  // namespace grid

/// See the top of the file; for arrays of n values, n < 2³².
template <GridDevice D>
class largest_values {
public:
    explicit largest_values(index_t n) : n_(n) {
        detail::check_countable("topk", n);
        const auto room = [](index_t bytes) {
            return tensor<std::uint8_t, D>::zeros({bytes}, memory_category::communication);
        };
        bins_ = room(grid::select_bins * 4);
        search_ = room(sizeof(grid::magnitude_search));
        counts_ = room(chunks() * static_cast<index_t>(sizeof(grid::run_counts)));
    }

    /// Bytes of the message of k values.
    static index_t bytes(index_t k) { return 8 * k; }

    /// The k largest of x (n), 1 ≤ k ≤ n, to `out`; in x, and in `also` if it is not null, they become zero.
    void take(float* x, index_t k, std::byte* out, float* also = nullptr) {
        flop_counter::count(0, 20.0 * static_cast<double>(n_) + static_cast<double>(bytes(k)));
        auto* const bins = reinterpret_cast<std::uint32_t*>(bins_.data());
        auto* const search = reinterpret_cast<grid::magnitude_search*>(search_.data());
        auto* const counts = reinterpret_cast<grid::run_counts*>(counts_.data());
        constexpr index_t of_counts = grid::select_threads * static_cast<index_t>(sizeof(grid::run_counts));
        D::launch({.blocks = 1, .threads = 32}, grid::begin_search{search, static_cast<std::uint32_t>(k)});
        int shift = 20;
        for (const int bits : {11, 10, 10}) {
            D::launch({.blocks = grid::blocks_for<D>(n_, grid::select_threads, 16),
                       .threads = grid::select_threads,
                       .shared = grid::select_bins * 4},
                      grid::count_magnitudes{n_, x, search, shift, bits, bins});
            D::launch({.blocks = 1, .threads = grid::select_threads, .shared = grid::select_threads * 4},
                      grid::take_bin{bins, bits, search});
            shift -= 10;
        }
        D::launch({.blocks = chunks(), .threads = grid::select_threads, .shared = grid::select_threads * 4},
                  grid::count_chunk{n_, x, search, counts});
        D::launch({.blocks = 1, .threads = grid::select_threads, .shared = of_counts},
                  grid::scan_chunks{chunks(), counts});
        D::launch({.blocks = chunks(), .threads = grid::select_threads, .shared = of_counts},
                  grid::write_chosen{n_, x, also, search, counts, positions_in(out), values_in(out, k)});
    }

    /// into[position] += value, of all k of a message.
    void add(std::byte* message, index_t k, float* into) const {
        flop_counter::count(0, 16.0 * static_cast<double>(k));
        D::launch({.blocks = grid::blocks_for<D>(k, 256), .threads = 256},
                  grid::add_at_positions{k, n_, positions_in(message), values_in(message, k), into});
    }

private:
    index_t chunks() const { return (n_ + grid::select_chunk - 1) / grid::select_chunk; }
    static std::uint32_t* positions_in(std::byte* m) { return reinterpret_cast<std::uint32_t*>(m); }
    static float* values_in(std::byte* m, index_t k) { return reinterpret_cast<float*>(m + 4 * k); }

    index_t n_;
    tensor<std::uint8_t, D> bins_, search_, counts_;
};

/// values (k) = x (n) at randomk's places of this step; `take`: x is zero there then.
template <GridDevice D>
void take_random_values(D, index_t n, index_t k, const encode_step& at, bool take, float* x, float* values) {
    flop_counter::count(0, 12.0 * static_cast<double>(k));
    D::launch({.blocks = grid::blocks_for<D>(k, 256), .threads = 256},
              grid::random_places{n, k, at.shared_random("randomk"), false, false, take, x, values});
}
/// x at those places = values, times what makes them unbiased if that is asked for.
template <GridDevice D>
void put_random_values(D, index_t n, index_t k, const encode_step& at, bool unbiased, float* x, float* values) {
    flop_counter::count(0, 12.0 * static_cast<double>(k));
    D::launch({.blocks = grid::blocks_for<D>(k, 256), .threads = 256},
              grid::random_places{n, k, at.shared_random("randomk"), true, unbiased, false, x, values});
}

}  // namespace cairn
