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
// A tile is worked off in strips of rows, a few register tiles high, through the microkernel of products: keys beyond
// a strip's diagonal are left out, and its scores stay in the first-level cache (attention_operands.hpp).
// Where heads alone keep the threads busy, a head is one task; else tiles of keys and then tiles of rows are, and S and
// dP are made twice. The bits are the same: each element is one sum over tiles in order, on any thread.
// Two floors: flops (4 head_dim + 5) pairs forward, (10 head_dim + 5) pairs backward; bytes of q, k, v, y once, and of
// twice as much backward.
// Not finite numbers make the rows that attend to them NaN; under a causal mask possibly also rows before them in the
// same tile (0 · ∞).
// Tested against plain loops, tests/oracle/attention.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/cpu/attention_operands.hpp>
#include <cairn/device/cpu/softmax.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn {

namespace attention_detail {

/// Its announcement.
template <class T>
kernel_call call_of(const char* kind, const attention_geometry& g, double flops, double bytes) {
    return kernel_call(kind, format_name<T>, flops, bytes,
                       {g.batch, g.length, g.heads, g.head_dim, g.causal, g.dropout > 0, g.lengths != nullptr});
}

/// Numbers that forward_rows needs.
template <class S>
index_t forward_room(index_t d) {
    return tile * (d + 3 * padded<S>(d) + 2) + 2 * strip * pitch;
}

/// One tile of rows of forward.
template <class T, class S>
void forward_rows(const operands<T>& o, index_t n, index_t h, index_t first, T* y, S* lse, S* room) {
    const attention_geometry& g = o.g;
    const index_t d = g.head_dim, wide = padded<S>(d), known = o.known(n), end = std::min(first + tile, g.length),
                  rows = std::clamp<index_t>(known - first, 0, end - first);
    T* const out = y + o.dense(n, first, h);
    S* const logs = lse ? lse + (n * g.heads + h) * g.length + first : nullptr;
    constexpr S nothing = -std::numeric_limits<S>::infinity();
    if (logs) std::fill_n(logs + rows, end - first - rows, nothing);
    clear(rows, end - first, d, out, g.width());
    if (rows == 0) return;
    arrays<S> cut{room};
    S *const k = cut.take(tile * d), *const v = cut.take(tile * wide), *const sum = cut.take(tile * wide),
             *const q = cut.take(tile * wide), *const s = cut.take(strip * pitch),
             *const mask = cut.take(strip * pitch), *const most = cut.take(tile), *const total = cut.take(tile);
    std::fill_n(most, rows, nothing);
    std::fill_n(total, rows, S{});
    const index_t keys = g.causal ? first + rows : known;
    pad_rows(rows, d, S{1}, o.q + o.at(n, first, h), g.position(), q);
    for (index_t j = 0; j < keys; j += tile) {
        const index_t count = std::min(tile, keys - j);
        o.pack_keys(n, h, j, count, v, k);
        pad_rows(count, d, S{1}, o.v + o.at(n, j, h), g.position(), v);
        for (index_t i = 0; i < rows; i += strip) {
            const index_t high = std::min(strip, rows - i), met = o.met(first + i + high, j, count);
            const index_t columns = whole<S>(met);
            multiply<S>(high, columns, d, {q + i * wide, wide, 1}, o.panels(k), false, s, pitch);
            if (g.dropout > 0) o.draw(n, h, first + i, high, j, met, mask);
            for (index_t r = i; r < i + high; ++r) {
                S* const row = s + (r - i) * pitch;
                const index_t attended = o.keys(first + r, j, count);
                hide(attended, columns, row, nothing);
                const S now = std::max(most[r], cairn::detail::row_max(columns, row));
                const S shift = now == nothing ? S{} : now;  // all −∞ so far: exp gives zeros, not NaN
                const S shrink = j == 0 ? S{} : std::exp(most[r] - shift);
                total[r] = total[r] * shrink + cairn::detail::row_exp(columns, row, shift, row);
                if (g.dropout > 0)
#pragma omp simd
                    for (index_t c = 0; c < columns; ++c) row[c] *= mask[(r - i) * pitch + c];
                most[r] = now;
                if (j > 0 && shrink != S{1})
#pragma omp simd
                    for (index_t c = 0; c < wide; ++c) sum[r * wide + c] *= shrink;
            }
            multiply<S>(high, wide, met, {s, pitch, 1}, {v, wide}, j > 0, sum + i * wide, wide);
        }
    }
    for (index_t r = 0; r < rows; ++r) {
        copy_rows(1, d, S{1} / total[r], sum + r * wide, wide, out + r * g.width(), g.width());
        if (logs) logs[r] = most[r] + std::log(total[r]);
    }
}

/// Backward of one head or of a tile of it.
template <class T>
struct gradients {
    using S = simd::arithmetic<T>;
    operands<T> o;
    const T *y, *dy;
    const S* lse;
    T *dq, *dk, *dv;

    /// D of every row.
    void products(index_t n, index_t h, S* to) const {
        const index_t d = o.g.head_dim;
        for (index_t i = 0; i < o.g.length; ++i) {
            const T *const a = y + o.dense(n, i, h), *const b = dy + o.dense(n, i, h);
            to[i] = cairn::detail::row_dot(d, a, b);
        }
    }

    /// The memory of a task: panels of a tile's Kᵀ and Vᵀ, its rows of K; a strip of Q, dy, P, dS and M; two tiles of
    /// results. Q is as it is, K scaled.
    struct memory {
        S *k_panels, *v_panels, *k, *q, *dy, *p, *ds, *mask, *first, *second;
        static index_t size(index_t d) {
            return tile * (2 * d + 3 * padded<S>(d)) + strip * (2 * padded<S>(d) + 3 * pitch);
        }
        memory(index_t d, S* from) {
            arrays<S> cut{from};
            const index_t wide = padded<S>(d);
            for (S** to : {&k_panels, &v_panels}) *to = cut.take(tile * d);
            for (S** to : {&k, &first, &second}) *to = cut.take(tile * wide);
            for (S** to : {&q, &dy}) *to = cut.take(strip * wide);
            for (S** to : {&p, &ds, &mask}) *to = cut.take(strip * pitch);
        }
    };

    /// Keys [j, j + count) of a head. Overwrites m.second.
    void load(index_t n, index_t h, index_t j, index_t count, const memory& m) const {
        o.pack_keys(n, h, j, count, m.k, m.k_panels);
        pad_rows(count, o.g.head_dim, S{1}, o.v + o.at(n, j, h), o.g.position(), m.second);
        builtin::pack_rows(true, 0, o.g.head_dim, o.g.head_dim, count, m.second, padded<S>(o.g.head_dim), m.v_panels);
    }

    /// P and dS of rows [i, i + rows), rows ≤ strip, and the first `met` keys of the tile at j; Q and dy of these rows.
    void weigh(index_t n, index_t h, index_t i, index_t rows, index_t j, index_t met, const S* products,
               const memory& m) const {
        const index_t d = o.g.head_dim, wide = padded<S>(d), columns = whole<S>(met);
        pad_rows(rows, d, S{1}, o.q + o.at(n, i, h), o.g.position(), m.q);
        pad_rows(rows, d, S{1}, dy + o.dense(n, i, h), o.g.width(), m.dy);
        multiply<S>(rows, columns, d, {m.q, wide, 1}, o.panels(m.k_panels), false, m.p, pitch);
        multiply<S>(rows, columns, d, {m.dy, wide, 1}, o.panels(m.v_panels), false, m.ds, pitch);
        if (o.g.dropout > 0) o.draw(n, h, i, rows, j, met, m.mask);
        const S* const logs = lse + (n * o.g.heads + h) * o.g.length;
        for (index_t r = 0; r < rows; ++r) {
            S *const p = m.p + r * pitch, *const ds = m.ds + r * pitch;
            const S log = logs[i + r], product = products[i + r];
            for (index_t c = 0; c < columns; c += simd::lanes<S>) {
                simd::pack<S> weight = simd::load(p + c), score = simd::load(ds + c);
                for (auto& part : weight.part) part = vector_math::exp_nonpositive(part - log);
                if (o.g.dropout > 0) {
                    const simd::pack<S> kept = simd::load(m.mask + r * pitch + c);
                    simd::store(p + c, weight * kept);
                    score *= kept;
                } else {
                    simd::store(p + c, weight);
                }
                simd::store(ds + c, weight * (score - product));
            }
            const index_t attended = o.keys(i + r, j, met);
            hide(attended, columns, p, S{});
            hide(attended, columns, ds, S{});
        }
    }

    /// dK and dV of the tile of keys at j; its share in dQ is added to all_dq (length × padded), if there is one.
    void keys(index_t n, index_t h, index_t j, S* all_dq, const S* products, S* space) const {
        const index_t d = o.g.head_dim, wide = padded<S>(d), known = o.known(n), step = o.g.position();
        const index_t count = std::clamp<index_t>(known - j, 0, tile), end = std::min(tile, o.g.length - j);
        const memory m(d, space);
        T *const to_k = dk + o.at(n, j, h), *const to_v = dv + o.at(n, j, h);
        clear(count, end, d, to_k, step);
        clear(count, end, d, to_v, step);
        if (count == 0) return;
        load(n, h, j, count, m);
        std::fill_n(m.first, count * wide, S{});
        std::fill_n(m.second, count * wide, S{});
        for (index_t i = o.g.causal ? j : 0; i < known; i += strip) {
            const index_t rows = std::min(strip, known - i), met = o.met(i + rows, j, count);
            weigh(n, h, i, rows, j, met, products, m);
            multiply<S>(met, wide, rows, {m.p, 1, pitch}, {m.dy, wide}, true, m.first, wide);
            multiply<S>(met, wide, rows, {m.ds, 1, pitch}, {m.q, wide}, true, m.second, wide);
            if (all_dq) multiply<S>(rows, wide, met, {m.ds, pitch, 1}, {m.k, wide}, j > 0, all_dq + i * wide, wide);
        }
        copy_rows(count, d, S{1}, m.first, wide, to_v, step);
        copy_rows(count, d, static_cast<S>(o.g.factor()), m.second, wide, to_k, step);
    }

    /// dQ of the tile of rows at `first`.
    void rows(index_t n, index_t h, index_t first, const S* products, S* space) const {
        const index_t d = o.g.head_dim, wide = padded<S>(d), known = o.known(n);
        const index_t rows = std::clamp<index_t>(known - first, 0, tile), end = std::min(tile, o.g.length - first);
        const memory m(d, space);
        const index_t keys = o.g.causal ? first + rows : known;
        for (index_t j = 0; rows > 0 && j < keys; j += tile) {
            const index_t count = std::min(tile, keys - j);
            load(n, h, j, count, m);
            for (index_t i = 0; i < rows; i += strip) {
                const index_t high = std::min(strip, rows - i), met = o.met(first + i + high, j, count);
                weigh(n, h, first + i, high, j, met, products, m);
                multiply<S>(high, wide, met, {m.ds, pitch, 1}, {m.k, wide}, j > 0, m.first + i * wide, wide);
            }
        }
        set_dq(n, h, first, rows, end, m.first);
    }

    /// dQ of rows [first, first + rows), zeros from there to first + end.
    void set_dq(index_t n, index_t h, index_t first, index_t rows, index_t end, const S* from) const {
        T* const to = dq + o.at(n, first, h);
        copy_rows(rows, o.g.head_dim, S{1}, from, padded<S>(o.g.head_dim), to, o.g.position());
        clear(rows, end, o.g.head_dim, to, o.g.position());
    }

    /// Numbers that head() needs.
    index_t head_room() const {
        return memory::size(o.g.head_dim) + o.g.length * padded<S>(o.g.head_dim) + whole<S>(o.g.length);
    }
    /// All of a head: five products a tile instead of seven.
    void head(index_t n, index_t h, S* space) const {
        const index_t length = o.g.length, wide = padded<S>(o.g.head_dim);
        arrays<S> cut{space};
        S *const d = cut.take(length), *const all_dq = cut.take(length * wide);
        products(n, h, d);
        for (index_t j = 0; j < length; j += tile) keys(n, h, j, all_dq, d, cut.next);
        set_dq(n, h, 0, o.known(n), length, all_dq);
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
template <class T, class S = simd::arithmetic<T>>
void attention_forward(cpu, const attention_geometry& g, const T* q, const T* k, const T* v, T* y,
                       std::type_identity_t<S>* lse) {
    g.check();
    const kernel_call call =
        attention_detail::call_of<T>("attention forward", g, g.forward_flops(), g.forward_bytes(sizeof(T), sizeof(S)));
    const attention_detail::operands<T> o{g, q, k, v};
    thread_rooms<S> rooms(attention_detail::forward_room<S>(g.head_dim));
    attention_detail::each_tile(g, attention_detail::tiles(g.length), [&](index_t n, index_t h, index_t at) {
        attention_detail::forward_rows(o, n, h, at * attention_detail::tile, y, lse, rooms.here());
    });
}

/// dq, dk, dv, in the layout of q, k, v, are set; y and lse as forward left them; dy as y.
template <class T, class S>
void attention_backward(cpu, const attention_geometry& g, const T* q, const T* k, const T* v, const T* y, const S* lse,
                        const T* dy, T* dq, T* dk, T* dv) {
    using namespace attention_detail;
    g.check();
    const kernel_call call =
        call_of<T>("attention backward", g, g.backward_flops(), g.backward_bytes(sizeof(T), sizeof(S)));
    const gradients<T> all{{g, q, k, v}, y, dy, lse, dq, dk, dv};
    const index_t heads = g.batch * g.heads;
    if (threads() == 1 || heads >= 4 * threads()) {
        thread_rooms<S> rooms(all.head_room());
        parallel_tasks(heads, [&](index_t head) { all.head(head / g.heads, head % g.heads, rooms.here()); });
        return;
    }
    tensor<S> products({heads * g.length}, memory_category::workspace);
    S* const d = products.data();
    parallel_tasks(heads, [&](index_t head) { all.products(head / g.heads, head % g.heads, d + head * g.length); });
    thread_rooms<S> rooms(gradients<T>::memory::size(g.head_dim));
    each_tile(g, tiles(g.length), [&](index_t n, index_t h, index_t at) {
        all.keys(n, h, at * tile, nullptr, d + (n * g.heads + h) * g.length, rooms.here());
    });
    each_tile(g, tiles(g.length), [&](index_t n, index_t h, index_t at) {
        all.rows(n, h, at * tile, d + (n * g.heads + h) * g.length, rooms.here());
    });
}

}  // namespace cairn
