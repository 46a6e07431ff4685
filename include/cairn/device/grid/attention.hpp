#pragma once
// Fused attention on a grid device: same names, arguments, formulas and results as device/cpu/attention.hpp. A block
// has a tile of rows of one head, its sums in shared memory, and goes over tiles of keys; in backward other blocks have
// a tile of keys and go over tiles of rows. S and dP are made twice there, so that there are no atomics and one order
// of summation. What the kernels share is in attention_tile.hpp. All seven products run on the tensor cores in bfloat16
// (tile_product.hpp); weights and dS are rounded to it for them, sums, maxima and logarithms are float. What limits it:
// sums travel between shared memory and registers for every tile, and loads wait for no pipeline. A length that is not
// in [0, length] cannot throw here: it is taken as 0 or as length.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/attention_geometry.hpp>
#include <cairn/device/grid/attention_tile.hpp>
#include <cairn/device/grid/tile_product.hpp>

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace cairn {

namespace grid {

template <class T>
struct attention_forward_kernel {
    using S = sum_type<T>;

    attention_head<T> head;
    S scale;
    const T *q, *k, *v;
    T* y;
    S* lse;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const attention_geometry& g = head.g;
        const attention_tiles<T>& t = head.t;
        const index_t tiles = (g.length + t.rows - 1) / t.rows, of = b.block() / tiles, n = of / g.heads,
                      h = of % g.heads;
        const index_t first = (tiles - 1 - b.block() % tiles) * t.rows;  // long ones first, under a causal mask
        const index_t known = head.known(n), here = g.length - first < t.rows ? g.length - first : t.rows;
        const index_t left = known - first, rows = left < 0 ? 0 : left < here ? left : here;
        shared_cursor memory{b.template shared<unsigned char>()};
        T* const of_q = memory.template take<T>(t.inputs(t.rows));
        T* const of_k = memory.template take<T>(t.inputs(t.keys));  // and v
        S* const sums = memory.template take<S>(t.sums(t.rows));
        S* const scores = memory.template take<S>(t.scores());
        T* const weights = memory.template take<T>(t.weights());
        S* const most = memory.template take<S>(t.each_row());
        S* const total = most + t.rows;
        std::uint8_t* const kept = memory.template take<std::uint8_t>(t.kept());
        head.load(b, q + head.at(n, first, h), head.step(), rows, t.rows, of_q);
        head.clear(b, t.rows, sums);
        for (index_t r = b.thread(); r < t.rows; r += b.threads()) {
            most[r] = -std::numeric_limits<S>::infinity();
            total[r] = 0;
        }
        const index_t end = rows == 0 ? 0 : g.causal ? first + rows : known;
        for (index_t j = 0; j < end; j += t.keys) {
            const index_t count = end - j < t.keys ? end - j : t.keys;
            head.load(b, k + head.at(n, j, h), head.step(), count, t.keys, of_k);
            if (t.dropout) head.draw(b, of, first, j, kept);
            b.sync();
            tile_product<false, true>(b, t.rows, t.keys, t.depth(), of_q, t.wide(), of_k, t.wide(), false, scores,
                                      t.score());
            b.sync();
            head.load(b, v + head.at(n, j, h), head.step(), count, t.keys, of_k);
            weigh(b, first, j, known, scores, kept, weights, most, total, sums);
            b.sync();
            tile_product<false, false>(b, t.rows, t.depth(), t.keys, weights, t.weight(), of_k, t.wide(), true, sums,
                                       t.wide_sum());
            b.sync();
        }
        b.sync();
        for (index_t e = b.thread(); e < rows * g.head_dim; e += b.threads()) {
            const index_t r = e / g.head_dim, c = e % g.head_dim;
            sums[r * t.wide_sum() + c] /= total[r];
        }
        if (lse)
            for (index_t r = b.thread(); r < here; r += b.threads())
                lse[of * g.length + first + r] =
                    r < rows ? most[r] + std::log(total[r]) : -std::numeric_limits<S>::infinity();
        b.sync();
        head.store(b, sums, S(1), rows, here, y + head.dense(n, first, h), g.heads * g.head_dim);
    }

    // The step of the online softmax, a row by a warp. Every warp has as many rows.
    template <class Block>
    CAIRN_HD void weigh(Block& b, index_t first, index_t j, index_t known, S* scores, const std::uint8_t* kept,
                        T* weights, S* most, S* total, S* sums) const {
        const attention_tiles<T>& t = head.t;
        const index_t warps = b.threads() / warp_threads, lane = b.thread() % warp_threads;
        const S nothing = -std::numeric_limits<S>::infinity();
        for (index_t r = b.thread() / warp_threads; r < t.rows; r += warps) {
            const S* const row = scores + r * t.score();
            const S before = most[r];
            S now = before;
            for (index_t c = lane; c < t.keys; c += warp_threads) {
                const S s = scale * row[c];
                if (head.attends(first + r, j + c, known) && s > now) now = s;  // a NaN loses
            }
            for (int mask = warp_threads / 2; mask > 0; mask /= 2) {
                const S other = b.shuffle_xor(now, mask);
                now = other > now ? other : now;
            }
            const S shift = now == nothing ? S{} : now, shrink = std::exp(before - shift);
            S sum = 0;
            for (index_t c = lane; c < t.keys; c += warp_threads) {
                const S p = head.attends(first + r, j + c, known) ? std::exp(scale * row[c] - shift) : S{};
                weights[r * t.weight() + c] = static_cast<T>(p * head.factor(kept, r, c));
                sum += p;
            }
            sum = warp_sum(b, sum);  // all lanes have read `before`
            if (lane == 0) {
                most[r] = now;
                total[r] = total[r] * shrink + sum;
            }
            for (index_t c = lane; c < t.depth(); c += warp_threads) sums[r * t.wide_sum() + c] *= shrink;
        }
    }
};

/// out (batch, heads, length) = Σ_c y dy, a row by a thread's warp.
template <class T>
struct attention_products_kernel {
    using S = sum_type<T>;

    index_t length, heads, head_dim;
    const T *y, *dy;
    S* out;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const index_t of = b.block() / length, i = b.block() % length, n = of / heads, h = of % heads;
        const index_t from = ((n * length + i) * heads + h) * head_dim;
        S dot = 0;
        for (index_t c = b.thread(); c < head_dim; c += b.threads())
            dot += static_cast<S>(y[from + c]) * static_cast<S>(dy[from + c]);
        dot = warp_sum(b, dot);
        if (b.thread() == 0) out[b.block()] = dot;
    }
};

/// Backward. OfKeys: dK and dV of a tile of keys; else dQ of a tile of rows.
template <class T, bool OfKeys>
struct attention_backward_kernel {
    using S = sum_type<T>;

    attention_head<T> head;
    S scale;
    const T *q, *k, *v, *dy;
    const S *lse, *products;
    T *dq, *dk, *dv;

    template <class Block>
    CAIRN_HD void operator()(Block& b) const {
        const attention_geometry& g = head.g;
        const attention_tiles<T>& t = head.t;
        const index_t own = OfKeys ? t.keys : t.rows, other = OfKeys ? t.rows : t.keys;
        const index_t tiles = (g.length + own - 1) / own, of = b.block() / tiles, n = of / g.heads, h = of % g.heads;
        const index_t tile = b.block() % tiles, first = (OfKeys ? tile : tiles - 1 - tile) * own;
        const index_t known = head.known(n), here = g.length - first < own ? g.length - first : own;
        const index_t left = known - first, count = left < 0 ? 0 : left < here ? left : here;
        shared_cursor memory{b.template shared<unsigned char>()};
        T* const of_q = memory.template take<T>(t.inputs(t.rows));
        T* const of_dy = memory.template take<T>(t.inputs(t.rows));
        T* const of_k = memory.template take<T>(t.inputs(t.keys));
        T* const of_v = memory.template take<T>(t.inputs(t.keys));
        S* const scores = memory.template take<S>(t.scores());
        S* const dp = memory.template take<S>(t.scores());
        T* const p = memory.template take<T>(t.weights());
        T* const ds = memory.template take<T>(t.weights());
        S* const each = memory.template take<S>(t.each_row());
        S* const sums = memory.template take<S>(t.sums(own));
        S* const more = OfKeys ? memory.template take<S>(t.sums(own)) : nullptr;
        std::uint8_t* const kept = memory.template take<std::uint8_t>(t.kept());
        load_side<OfKeys>(b, n, h, first, count, of_q, of_dy, of_k, of_v, each);
        head.clear(b, own, sums);
        if (OfKeys) head.clear(b, own, more);
        index_t begin = 0, end = count == 0 ? 0 : known;
        if (OfKeys && g.causal) begin = first / other * other;
        if (!OfKeys && g.causal && count > 0) end = first + count;
        for (index_t at = begin; at < end; at += other) {
            const index_t there = end - at < other ? end - at : other;
            load_side<!OfKeys>(b, n, h, at, there, of_q, of_dy, of_k, of_v, each);
            if (t.dropout) head.draw(b, of, OfKeys ? at : first, OfKeys ? first : at, kept);
            b.sync();
            tile_product<false, true>(b, t.rows, t.keys, t.depth(), of_q, t.wide(), of_k, t.wide(), false, scores,
                                      t.score());
            tile_product<false, true>(b, t.rows, t.keys, t.depth(), of_dy, t.wide(), of_v, t.wide(), false, dp,
                                      t.score());
            b.sync();
            head.differentiate(b, OfKeys ? at : first, OfKeys ? first : at, known, scale, scores, dp, each, kept, p,
                               ds);
            b.sync();
            if constexpr (OfKeys) {
                tile_product<true, false>(b, t.keys, t.depth(), t.rows, ds, t.weight(), of_q, t.wide(), true, sums,
                                          t.wide_sum());
                tile_product<true, false>(b, t.keys, t.depth(), t.rows, p, t.weight(), of_dy, t.wide(), true, more,
                                          t.wide_sum());
            } else {
                tile_product<false, false>(b, t.rows, t.depth(), t.keys, ds, t.weight(), of_k, t.wide(), true, sums,
                                           t.wide_sum());
            }
            b.sync();
        }
        b.sync();
        head.store(b, sums, scale, count, here, (OfKeys ? dk : dq) + head.at(n, first, h), head.step());
        if (OfKeys) head.store(b, more, S(1), count, here, dv + head.at(n, first, h), head.step());
    }

    // Keys and values, or rows of q and dy with what each has.
    template <bool Keys, class Block>
    CAIRN_HD void load_side(Block& b, index_t n, index_t h, index_t first, index_t count, T* of_q, T* of_dy, T* of_k,
                            T* of_v, S* each) const {
        const attention_geometry& g = head.g;
        const attention_tiles<T>& t = head.t;
        if constexpr (Keys) {
            head.load(b, k + head.at(n, first, h), head.step(), count, t.keys, of_k);
            head.load(b, v + head.at(n, first, h), head.step(), count, t.keys, of_v);
        } else {
            head.load(b, q + head.at(n, first, h), head.step(), count, t.rows, of_q);
            head.load(b, dy + head.dense(n, first, h), g.heads * g.head_dim, count, t.rows, of_dy);
            const index_t from = (n * g.heads + h) * g.length + first;
            for (index_t r = b.thread(); r < t.rows; r += b.threads()) {
                each[r] = r < count ? lse[from + r] : S{};
                each[t.rows + r] = r < count ? products[from + r] : S{};
            }
        }
    }
};

/// Whether rows of heads can be moved 16 bytes at a time.
template <class T, class... Arrays>
bool head_packets(const attention_geometry& g, const Arrays*... arrays) {
    constexpr index_t lanes = 16 / static_cast<index_t>(sizeof(T));
    return g.head_dim % lanes == 0 && g.position() % lanes == 0 &&
           ((reinterpret_cast<std::uintptr_t>(arrays) % 16 == 0) && ...);
}

inline index_t attention_blocks(const attention_geometry& g, index_t own) {
    return g.batch * g.heads * ((g.length + own - 1) / own);
}

/// Launches of attention_forward() of this file's kernels.
template <class T, GridDevice D>
void attention_forward(D, const attention_geometry& g, const T* q, const T* k, const T* v, T* y, sum_type<T>* lse) {
    const auto t = attention_tiles<T>::that_fit(g, [](const auto& tiles) { return tiles.forward_bytes(); });
    D::launch({.blocks = attention_blocks(g, t.rows), .threads = attention_threads, .shared = t.forward_bytes()},
              attention_forward_kernel<T>{
                  {g, t, head_packets<T>(g, q, k, v)}, static_cast<sum_type<T>>(g.factor()), q, k, v, y, lse});
}

/// Launches of attention_backward() of this file's kernels.
template <class T, GridDevice D>
void attention_backward(D, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y,
                        const sum_type<T>* lse, const T* dy, T* dq, T* dk, T* dv) {
    using S = sum_type<T>;
    const index_t rows = g.batch * g.heads * g.length;
    tensor<S, D> products({rows}, memory_category::workspace);
    D::launch({.blocks = rows, .threads = warp_threads},
              attention_products_kernel<T>{g.length, g.heads, g.head_dim, y, dy, products.data()});
    const bool packets = head_packets<T>(g, q, k, v, dy);
    const auto run = [&]<bool OfKeys>(std::bool_constant<OfKeys>) {
        const auto t = attention_tiles<T>::that_fit(g, [](const auto& tiles) { return tiles.backward_bytes(OfKeys); });
        D::launch({.blocks = attention_blocks(g, OfKeys ? t.keys : t.rows),
                   .threads = attention_threads,
                   .shared = t.backward_bytes(OfKeys)},
                  attention_backward_kernel<T, OfKeys>{
                      {g, t, packets}, static_cast<S>(g.factor()), q, k, v, dy, lse, products.data(), dq, dk, dv});
    };
    run(std::true_type{});
    run(std::false_type{});
}

}  // namespace grid

namespace detail {

/// Whether there is anything to do; counts the work. Throws on sizes that make no attention.
template <class T>
bool begin_attention(const attention_geometry& g, bool forward) {
    g.check();
    const double of_sum = sizeof(grid::sum_type<T>);
    if (forward)
        flop_counter::count(g.forward_flops(), g.forward_bytes(sizeof(T), of_sum));
    else
        flop_counter::count(g.backward_flops(), g.backward_bytes(sizeof(T), of_sum));
    return g.batch * g.length > 0;
}

}  // namespace detail

/// y (batch, length, heads, head_dim) and lse (batch, heads, length), float (double for double), for backward, or null.
/// lse is −∞ where a row attends to nothing. Throws on sizes that do not fit, naming them.
template <class T, GridDevice D>
void attention_forward(D d, const attention_geometry& g, const T* q, const T* k, const T* v, T* y,
                       std::type_identity_t<grid::sum_type<T>>* lse) {
    if (detail::begin_attention<T>(g, true)) grid::attention_forward(d, g, q, k, v, y, lse);
}

/// dq, dk, dv, in the layout of q, k, v, are set; y and lse as forward left them; dy as y.
template <class T, GridDevice D>
void attention_backward(D d, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y,
                        const std::type_identity_t<grid::sum_type<T>>* lse, const T* dy, T* dq, T* dk, T* dv) {
    if (detail::begin_attention<T>(g, false)) grid::attention_backward(d, g, q, k, v, y, lse, dy, dq, dk, dv);
}

}  // namespace cairn
