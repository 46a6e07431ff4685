#pragma once
// Fused scaled dot-product attention (attention_geometry.hpp): the length × length matrix is never in memory, only
// tiles of it.
// Forward, one tile of rows after tiles of keys (online softmax: Milakov and Gimelshein 2018; Rabe and Staats 2021;
// FlashAttention, Dao et al.
// 2022, algorithm 1, in the form of FlashAttention-2, Dao 2023, section 3.1):
//   S = scale Q Kᵀ,  m' = max(m, rowmax S),  P = exp(S − m'),  l ← exp(m − m') l + rowsum P,  O ← exp(m − m') O + P V
//   at the end  y = O / l,  lse = m + log l
// Backward (FlashAttention-2, algorithm 2), with P = exp(S − lse) and D = rowsum(dy ∘ y):
//   dV = Pᵀ dy,   dP = dy Vᵀ,   dS = P ∘ (dP − D),   dQ = scale dS K,   dK = scale dSᵀ Q
// Dropout multiplies P by M, 0 or 1 / (1 − rate), behind the softmax: l stays, O takes M ∘ P; dV = (M ∘ P)ᵀ dy, dS = P
// ∘ (M ∘ dP − D).
// Where heads alone keep the threads busy, a head is one task; else tiles of keys and then tiles of rows are, and S and
// dP are made twice. The bits are the same: each element is one sum over tiles in order, on any thread.
// Two floors: flops (4 head_dim + 5) pairs forward, (10 head_dim + 5) pairs backward; bytes of q, k, v, y once, and of
// twice as much backward.
// Not finite numbers make the rows that attend to them NaN; under a causal mask possibly also rows before them in the
// same tile (0 · ∞).
// Tested against plain loops, tests/oracle/attention.hpp.

#include <cairn/core/flop_counter.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/device/attention_geometry.hpp>
#include <cairn/device/cpu/gemm_builtin.hpp>
#include <cairn/device/cpu/philox.hpp>
#include <cairn/device/cpu/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn {

namespace attention_detail {

inline constexpr index_t tile_rows = 112, tile_keys = 128;  // eight register tiles high; S of floats is 56 KiB
static_assert(tile_rows % 4 == 0 && tile_keys % 16 == 0, "a mask is drawn for 4 rows and 16 keys at a time");

inline index_t tiles(index_t n, index_t size) { return (n + size - 1) / size; }

/// What all tiles of one call share.
template <class T>
struct operands {
    const attention_geometry& g;
    const T *q, *k, *v;
    index_t known(index_t n) const {
        if (!g.lengths) return g.length;
        const index_t valid = g.lengths[n];
        require(valid >= 0 && valid <= g.length, "attention: sequence ", n, " has length ", valid, ", not in [0, ",
                g.length, ']');
        return valid;
    }
    /// First element of position i of a head in q, k, v and their gradients; in y.
    index_t at(index_t n, index_t i, index_t h) const { return (n * g.length + i) * g.position() + h * g.head_dim; }
    index_t dense(index_t n, index_t i, index_t h) const { return ((n * g.length + i) * g.heads + h) * g.head_dim; }
    /// Keys of a tile that begins at j which row i attends to.
    index_t keys(index_t i, index_t j, index_t count) const {
        return g.causal ? std::clamp<index_t>(i + 1 - j, 0, count) : count;
    }
    /// Keys of such a tile which some row before row `end` attends to.
    index_t met(index_t end, index_t j, index_t count) const { return g.causal ? std::min(count, end - j) : count; }
    /// M of a tile that begins at row i and key j, rows tile_keys apart. i is a multiple of 4, j of 16.
    void draw(index_t n, index_t h, index_t i, index_t rows, index_t j, index_t count, T* to) const {
        random_stream random = g.random;
        if (g.step) random.step = *g.step;
        const philox_lanes lanes(random);
        const std::uint32_t threshold = g.threshold();
        const T factor = static_cast<T>(g.kept_factor());
        for (index_t r = 0; r < rows; r += 4)
            for (index_t c = 0; c < count; c += 16) {
                std::uint32_t bits[64];
                const std::uint64_t block = g.mask_block(n * g.heads + h, i + r, j + c);
                lanes.blocks(block, bits, 16);
                lanes.blocks(block + 8, bits + 8, 16);
                for (index_t w = 0; w < std::min<index_t>(4, rows - r); ++w)
                    for (index_t lane = 0; lane < 16; ++lane)
                        to[(r + w) * tile_keys + c + lane] = bits[w * 16 + lane] >= threshold ? factor : T{};
            }
    }
    /// Numbers of one such M, none without dropout.
    index_t drawn(index_t rows) const { return g.dropout > 0 ? rows * tile_keys : 0; }
};

/// c = op(a) op(b), added to c with `add`, by this thread.
template <class T>
void multiply(bool trans_a, bool trans_b, index_t m, index_t n, index_t k, const T* a, index_t lda, const T* b,
              index_t ldb, bool add, T* c, index_t ldc) {
    builtin::gemm(false, trans_a, trans_b, m, n, k, T{1}, a, lda, b, ldb, add ? T{1} : T{}, c, ldc);
}

/// scale · rows of q, dense.
template <class T>
void scaled_rows(const operands<T>& o, index_t n, index_t h, index_t first, index_t rows, T* to) {
    const T scale = static_cast<T>(o.g.factor());
    for (index_t r = 0; r < rows; ++r) {
        const T* const from = o.q + o.at(n, first + r, h);
#pragma omp simd
        for (index_t c = 0; c < o.g.head_dim; ++c) to[r * o.g.head_dim + c] = scale * from[c];
    }
}

/// Sets rows [first, last) of a head to zero.
template <class T>
void clear(index_t first, index_t last, index_t d, T* row, index_t stride) {
    for (index_t r = first; r < last; ++r) std::fill_n(row + r * stride, d, T{});
}

/// One tile of rows of forward.
template <class T>
void forward_rows(const operands<T>& o, index_t n, index_t h, index_t first, T* y, T* lse) {
    const attention_geometry& g = o.g;
    const index_t d = g.head_dim, known = o.known(n), end = std::min(first + tile_rows, g.length),
                  rows = std::clamp<index_t>(known - first, 0, end - first);
    T* const out = y + o.dense(n, first, h);
    T* const logs = lse ? lse + (n * g.heads + h) * g.length + first : nullptr;
    constexpr T nothing = -std::numeric_limits<T>::infinity();
    if (logs) std::fill_n(logs + rows, end - first - rows, nothing);
    clear(rows, end - first, d, out, g.width());
    if (rows == 0) return;
    tensor<T> room({rows * (2 * d + tile_keys + 2) + o.drawn(rows)}, memory_category::workspace);
    T *const q = room.data(), *const sum = q + rows * d, *const s = sum + rows * d, *const most = s + rows * tile_keys,
             *const total = most + rows, *const mask = total + rows;
    scaled_rows(o, n, h, first, rows, q);
    std::fill_n(sum, rows * d, T{});
    std::fill_n(most, rows, nothing);
    std::fill_n(total, rows, T{});
    const index_t keys = g.causal ? first + rows : known;
    for (index_t j = 0; j < keys; j += tile_keys) {
        const index_t count = std::min(tile_keys, keys - j);
        multiply(false, true, rows, count, d, q, d, o.k + o.at(n, j, h), g.position(), false, s, tile_keys);
        if (g.dropout > 0) o.draw(n, h, first, rows, j, count, mask);
        for (index_t r = 0; r < rows; ++r) {
            T* const row = s + r * tile_keys;
            const index_t attended = o.keys(first + r, j, count);
            const T now = std::max(most[r], cairn::detail::row_max(attended, row));
            const T shift = now == nothing ? T{} : now;  // all −∞ so far: exp gives zeros, not NaN
            const T shrink = std::exp(most[r] - shift);
            total[r] = total[r] * shrink + cairn::detail::row_exp(attended, row, shift, row);
            std::fill(row + attended, row + count, T{});
            if (g.dropout > 0)
#pragma omp simd
                for (index_t c = 0; c < attended; ++c) row[c] *= mask[r * tile_keys + c];
            most[r] = now;
            if (shrink != T{1})
#pragma omp simd
                for (index_t c = 0; c < d; ++c) sum[r * d + c] *= shrink;
        }
        multiply(false, false, rows, d, count, s, tile_keys, o.v + o.at(n, j, h), g.position(), true, sum, d);
    }
    for (index_t r = 0; r < rows; ++r) {
        const T inverse = T{1} / total[r];
#pragma omp simd
        for (index_t c = 0; c < d; ++c) out[r * g.width() + c] = sum[r * d + c] * inverse;
        if (logs) logs[r] = most[r] + std::log(total[r]);
    }
}

/// Backward of one head or of a tile of it.
template <class T>
struct gradients {
    operands<T> o;
    const T *y, *dy, *lse;
    T *dq, *dk, *dv;

    /// D of every row.
    void products(index_t n, index_t h, T* to) const {
        const index_t d = o.g.head_dim;
        for (index_t i = 0; i < o.g.length; ++i) {
            const T *const a = y + o.dense(n, i, h), *const b = dy + o.dense(n, i, h);
            T dot = 0;
#pragma omp simd reduction(+ : dot)
            for (index_t c = 0; c < d; ++c) dot += a[c] * b[c];
            to[i] = dot;
        }
    }

    /// P and dS of rows [i, i + rows) and keys [j, j + count); q: the rows of Q, scaled.
    void tile(index_t n, index_t h, index_t i, index_t rows, index_t j, index_t count, const T* q, const T* products,
              T* p, T* ds) const {
        T* const mask = ds + tile_rows * tile_keys;
        if (o.g.dropout > 0) o.draw(n, h, i, rows, j, count, mask);
        const index_t d = o.g.head_dim;
        multiply(false, true, rows, count, d, q, d, o.k + o.at(n, j, h), o.g.position(), false, p, tile_keys);
        multiply(false, true, rows, count, d, dy + o.dense(n, i, h), o.g.width(), o.v + o.at(n, j, h), o.g.position(),
                 false, ds, tile_keys);
        const T* const logs = lse + (n * o.g.heads + h) * o.g.length;
        for (index_t r = 0; r < rows; ++r) {
            T *const p_row = p + r * tile_keys, *const ds_row = ds + r * tile_keys;
            const index_t attended = o.keys(i + r, j, count);
            const T log = logs[i + r], product = products[i + r];
            if (o.g.dropout > 0) {
                const T* const m = mask + r * tile_keys;
#pragma omp simd
                for (index_t c = 0; c < attended; ++c) {
                    const T weight = vector_math::exp(p_row[c] - log);
                    p_row[c] = weight * m[c];
                    ds_row[c] = weight * (ds_row[c] * m[c] - product);
                }
            } else {
#pragma omp simd
                for (index_t c = 0; c < attended; ++c) {
                    const T weight = vector_math::exp(p_row[c] - log);
                    p_row[c] = weight;
                    ds_row[c] = weight * (ds_row[c] - product);
                }
            }
            std::fill(p_row + attended, p_row + count, T{});
            std::fill(ds_row + attended, ds_row + count, T{});
        }
    }

    /// Room for tile(): q, P, dS and M.
    index_t room() const { return tile_rows * (o.g.head_dim + 2 * tile_keys) + o.drawn(tile_rows); }

    /// dK and dV of keys [j, j + tile_keys), and with `rows_too` their share in dQ.
    void keys(index_t n, index_t h, index_t j, bool rows_too, const T* products, T* space) const {
        const index_t d = o.g.head_dim, known = o.known(n), step = o.g.position();
        const index_t count = std::clamp<index_t>(known - j, 0, tile_keys);
        T *const q = space, *const p = q + tile_rows * d, *const ds = p + tile_rows * tile_keys;
        T *const to_k = dk + o.at(n, j, h), *const to_v = dv + o.at(n, j, h);
        const index_t end = std::min(tile_keys, o.g.length - j);
        clear(0, end, d, to_k, step);
        clear(0, end, d, to_v, step);
        if (count == 0) return;
        for (index_t i = o.g.causal ? j / tile_rows * tile_rows : 0; i < known; i += tile_rows) {
            const index_t rows = std::min(tile_rows, known - i), met = o.met(i + rows, j, count);
            scaled_rows(o, n, h, i, rows, q);
            tile(n, h, i, rows, j, met, q, products, p, ds);
            multiply(true, false, met, d, rows, p, tile_keys, dy + o.dense(n, i, h), o.g.width(), true, to_v, step);
            multiply(true, false, met, d, rows, ds, tile_keys, q, d, true, to_k, step);
            if (rows_too) add_rows(n, h, i, rows, j, met, ds);
        }
    }

    /// dQ of rows [i, i + tile_rows).
    void rows(index_t n, index_t h, index_t i, const T* products, T* space) const {
        const index_t d = o.g.head_dim, known = o.known(n);
        const index_t rows = std::clamp<index_t>(known - i, 0, tile_rows);
        T *const q = space, *const p = q + tile_rows * d, *const ds = p + tile_rows * tile_keys;
        clear(0, std::min(tile_rows, o.g.length - i), d, dq + o.at(n, i, h), o.g.position());
        if (rows == 0) return;
        scaled_rows(o, n, h, i, rows, q);
        const index_t keys = o.g.causal ? i + rows : known;
        for (index_t j = 0; j < keys; j += tile_keys) {
            const index_t count = o.met(i + rows, j, std::min(tile_keys, known - j));
            tile(n, h, i, rows, j, count, q, products, p, ds);
            add_rows(n, h, i, rows, j, count, ds);
        }
        scale_rows(n, h, i, rows);
    }

    void add_rows(index_t n, index_t h, index_t i, index_t rows, index_t j, index_t count, const T* ds) const {
        multiply(false, false, rows, o.g.head_dim, count, ds, tile_keys, o.k + o.at(n, j, h), o.g.position(), true,
                 dq + o.at(n, i, h), o.g.position());
    }
    void scale_rows(index_t n, index_t h, index_t i, index_t rows) const {
        const T scale = static_cast<T>(o.g.factor());
        for (index_t r = 0; r < rows; ++r) {
            T* const row = dq + o.at(n, i + r, h);
#pragma omp simd
            for (index_t c = 0; c < o.g.head_dim; ++c) row[c] *= scale;
        }
    }

    /// All of a head: five products a tile instead of seven.
    void head(index_t n, index_t h) const {
        tensor<T> space({o.g.length + room()}, memory_category::workspace);
        T* const d = space.data();
        products(n, h, d);
        clear(0, o.g.length, o.g.head_dim, dq + o.at(n, 0, h), o.g.position());
        for (index_t j = 0; j < o.g.length; j += tile_keys) keys(n, h, j, true, d, d + o.g.length);
        scale_rows(n, h, 0, o.known(n));
    }
};

/// Calls body(n, h, tile) for all of them, the last tiles, which are long ones under a causal mask, first.
template <class Body>
void each_tile(const attention_geometry& g, index_t count, Body&& body) {
    const index_t heads = g.batch * g.heads;
    parallel_tasks(heads * count, [&](index_t task) {
        const index_t head = task % heads;
        body(head / g.heads, head % g.heads, count - 1 - task / heads);
    });
}

}  // namespace attention_detail

/// y (batch, length, heads, head_dim) and lse (batch, heads, length), the logarithm of each row's sum, for backward, or
/// null. lse is −∞ where a row attends to nothing. Throws on sizes or lengths that do not fit, naming them.
template <class T>
void attention_forward(cpu, const attention_geometry& g, const T* q, const T* k, const T* v, T* y, T* lse) {
    g.check();
    flop_counter::count(g.forward_flops(), g.forward_bytes(sizeof(T), sizeof(T)));
    const attention_detail::operands<T> o{g, q, k, v};
    attention_detail::each_tile(g, attention_detail::tiles(g.length, attention_detail::tile_rows),
                                [&](index_t n, index_t h, index_t tile) {
                                    attention_detail::forward_rows(o, n, h, tile * attention_detail::tile_rows, y, lse);
                                });
}

/// dq, dk, dv, in the layout of q, k, v, are set; y and lse as forward left them; dy as y.
template <class T>
void attention_backward(cpu, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y, const T* lse,
                        const T* dy, T* dq, T* dk, T* dv) {
    using namespace attention_detail;
    g.check();
    flop_counter::count(g.backward_flops(), g.backward_bytes(sizeof(T), sizeof(T)));
    const gradients<T> all{{g, q, k, v}, y, dy, lse, dq, dk, dv};
    const index_t heads = g.batch * g.heads;
    if (threads() == 1 || heads >= 4 * threads()) {
        parallel_tasks(heads, [&](index_t head) { all.head(head / g.heads, head % g.heads); });
        return;
    }
    tensor<T> products({heads * g.length}, memory_category::workspace);
    T* const d = products.data();
    parallel_tasks(heads, [&](index_t head) { all.products(head / g.heads, head % g.heads, d + head * g.length); });
    const auto with_room = [&](auto&& work) {
        return [&, work](index_t n, index_t h, index_t tile) {
            tensor<T> space({all.room()}, memory_category::workspace);
            work(n, h, tile, d + (n * g.heads + h) * g.length, space.data());
        };
    };
    each_tile(g, tiles(g.length, tile_keys), with_room([&](index_t n, index_t h, index_t tile, const T* of, T* space) {
                  all.keys(n, h, tile * tile_keys, false, of, space);
              }));
    each_tile(g, tiles(g.length, tile_rows), with_room([&](index_t n, index_t h, index_t tile, const T* of, T* space) {
                  all.rows(n, h, tile * tile_rows, of, space);
              }));
}

}  // namespace cairn
