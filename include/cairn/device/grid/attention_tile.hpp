#pragma once
// Common parts of the kernels of attention.hpp: the tiles of one head that a block holds in shared memory, their
// sizes, how rows come and go, which weights dropout keeps, and the derivative of a tile of weights.

#include <cairn/core/random.hpp>
#include <cairn/device/attention_geometry.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/grid/tile_product.hpp>

#include <cmath>
#include <cstdint>

namespace cairn::grid {

inline constexpr int attention_threads = 128;

/// Sizes of the tiles of one kernel.
template <class T>
struct attention_tiles {
    using S = sum_type<T>;

    index_t rows = 32, keys = 32, head_dim = 0;
    bool dropout = false;

    CAIRN_HD index_t depth() const { return (head_dim + 15) / 16 * 16; }
    CAIRN_HD index_t wide() const { return tile_stride<T>(head_dim); }      // q, k, v, dy
    CAIRN_HD index_t wide_sum() const { return tile_stride<S>(head_dim); }  // sums over them
    CAIRN_HD index_t score() const { return tile_stride<S>(keys); }         // S, dP
    CAIRN_HD index_t weight() const { return tile_stride<T>(keys); }        // P, dS
    CAIRN_HD static index_t whole(index_t bytes) { return (bytes + 31) / 32 * 32; }
    CAIRN_HD index_t inputs(index_t n) const { return whole(n * wide() * index_t{sizeof(T)}); }
    CAIRN_HD index_t sums(index_t n) const { return whole(n * wide_sum() * index_t{sizeof(S)}); }
    CAIRN_HD index_t scores() const { return whole(rows * score() * index_t{sizeof(S)}); }
    CAIRN_HD index_t weights() const { return whole(rows * weight() * index_t{sizeof(T)}); }
    CAIRN_HD index_t each_row() const { return whole(2 * rows * index_t{sizeof(S)}); }
    CAIRN_HD index_t kept() const { return dropout ? whole(rows * keys) : 0; }  // a byte a weight

    index_t forward_bytes() const {
        return inputs(rows) + inputs(keys) + sums(rows) + scores() + weights() + each_row() + kept();
    }
    /// `of_keys`: whether the sums are those of a tile of keys, or of a tile of rows.
    index_t backward_bytes(bool of_keys) const {
        return 2 * (inputs(rows) + inputs(keys) + scores() + weights()) + (of_keys ? 2 * sums(keys) : sums(rows)) +
               each_row() + kept();
    }

    /// The largest tiles that fit. Throws where none do.
    template <class Bytes>
    static attention_tiles that_fit(const attention_geometry& g, Bytes&& bytes) {
        for (const index_t rows : {index_t{32}, index_t{16}})
            for (const index_t keys : {index_t{32}, index_t{16}}) {
                const attention_tiles t{rows, keys, g.head_dim, g.dropout > 0};
                if (bytes(t) <= grid_size::most_shared) return t;
            }
        fail("attention: heads of ", g.head_dim, " numbers of ", sizeof(T), " bytes do not fit the ",
             grid_size::most_shared, " bytes that a block of a GPU shares; take more heads of fewer numbers each");
    }
};

/// Hands out the memory that a block shares.
struct shared_cursor {
    unsigned char* at;
    template <class U>
    CAIRN_HD U* take(index_t bytes) {
        U* const here = reinterpret_cast<U*>(at);
        at += bytes;
        return here;
    }
};

/// Common part of the kernels: one head, its tiles, and their loads and stores.
template <class T>
struct attention_head {
    using S = sum_type<T>;

    attention_geometry g;
    attention_tiles<T> t;
    bool packets;  // rows of q, k, v and dy can be read 16 bytes at a time
    std::uint32_t threshold = static_cast<std::uint32_t>(g.dropout * 0x1p32);
    S kept_factor = static_cast<S>(1 / (1 - g.dropout));

    CAIRN_HD index_t known(index_t n) const {
        if (!g.lengths) return g.length;
        const index_t valid = g.lengths[n];
        return valid < 0 ? 0 : valid > g.length ? g.length : valid;
    }
    CAIRN_HD index_t step() const { return g.stride ? g.stride : g.heads * g.head_dim; }
    CAIRN_HD index_t at(index_t n, index_t i, index_t h) const { return (n * g.length + i) * step() + h * g.head_dim; }
    CAIRN_HD index_t dense(index_t n, index_t i, index_t h) const {
        return ((n * g.length + i) * g.heads + h) * g.head_dim;
    }

    /// Rows of which `count` are there, `stride` apart, to a tile of `rows`; zeros elsewhere.
    template <class Block>
    CAIRN_HD void load(Block& b, const T* from, index_t stride, index_t count, index_t rows, T* to) const {
        constexpr int lanes = 16 / static_cast<int>(sizeof(T));
        const index_t depth = t.depth(), wide = t.wide();
        if (packets) {
            using piece = packet<T, lanes>;
            const index_t across = depth / lanes;
            for (index_t e = b.thread(); e < rows * across; e += b.threads()) {
                const index_t r = e / across, c = e % across * lanes;
                piece p{};
                if (r < count && c < g.head_dim) p = *reinterpret_cast<const piece*>(from + r * stride + c);
                *reinterpret_cast<piece*>(to + r * wide + c) = p;
            }
            return;
        }
        for (index_t e = b.thread(); e < rows * depth; e += b.threads()) {
            const index_t r = e / depth, c = e % depth;
            to[r * wide + c] = r < count && c < g.head_dim ? from[r * stride + c] : T{};
        }
    }

    /// The first `count` rows of sums times `factor`, zeros in those up to `rows`.
    template <class Block>
    CAIRN_HD void store(Block& b, const S* sums, S factor, index_t count, index_t rows, T* to, index_t stride) const {
        for (index_t e = b.thread(); e < rows * g.head_dim; e += b.threads()) {
            const index_t r = e / g.head_dim, c = e % g.head_dim;
            to[r * stride + c] = static_cast<T>(r < count ? sums[r * t.wide_sum() + c] * factor : S{});
        }
    }

    template <class Block>
    CAIRN_HD void clear(Block& b, index_t n, S* sums) const {
        for (index_t e = b.thread(); e < n * t.wide_sum(); e += b.threads()) sums[e] = S{};
    }

    CAIRN_HD bool attends(index_t i, index_t j, index_t known) const {
        return i < known && j < known && (!g.causal || j <= i);
    }

    /// Which weights of a tile dropout keeps: of rows from i, a multiple of 4, and keys from j, in head `of` of all.
    template <class Block>
    CAIRN_HD void draw(Block& b, index_t of, index_t i, index_t j, std::uint8_t* kept) const {
        random_stream random = g.random;
        if (g.step) random.step = *g.step;
        for (index_t e = b.thread(); e < t.rows / 4 * t.keys; e += b.threads()) {
            const index_t r = e / t.keys * 4, c = e % t.keys;
            const auto bits = random.bits4(g.mask_block(of, i + r, j + c));
            for (int w = 0; w < 4; ++w) kept[(r + w) * t.keys + c] = bits[static_cast<std::size_t>(w)] >= threshold;
        }
    }
    /// M of a weight: 1 without dropout.
    CAIRN_HD S factor(const std::uint8_t* kept, index_t r, index_t c) const {
        return !t.dropout ? S(1) : kept[r * t.keys + c] ? kept_factor : S{};
    }

    /// M ∘ P and dS of a tile from S and dP, for rows from i and keys from j.
    template <class Block>
    CAIRN_HD void differentiate(Block& b, index_t i, index_t j, index_t known, S scale, const S* scores, const S* dp,
                                const S* each, const std::uint8_t* kept, T* p, T* ds) const {
        for (index_t e = b.thread(); e < t.rows * t.keys; e += b.threads()) {
            const index_t r = e / t.keys, c = e % t.keys;
            S weight = 0, slope = 0;
            if (attends(i + r, j + c, known)) {
                weight = std::exp(scale * scores[r * t.score() + c] - each[r]);
                const S m = factor(kept, r, c);
                slope = weight * (m * dp[r * t.score() + c] - each[t.rows + r]);
                weight *= m;
            }
            p[r * t.weight() + c] = static_cast<T>(weight);
            ds[r * t.weight() + c] = static_cast<T>(slope);
        }
    }
};

}  // namespace cairn::grid
