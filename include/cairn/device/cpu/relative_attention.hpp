#pragma once
// Attention with relative positions and a memory (relative_attention_geometry.hpp), fused: a task is a head of one
// sequence, and goes over strips of rows whose scores stay in the caches (attention_operands.hpp).
//   S = qu Kᵀ,  T = qv Rᵀ,  row i of S += row i of T from place L − 1 − i on,  y = softmax(S) V,  lse = log Σ exp S
// Backward, with P = exp(S − lse) and D = rowsum(dy ∘ y):
//   dV = Pᵀ dy,  dS = P ∘ (dy Vᵀ − D),  dqu = dS K,  dK = dSᵀ qu
//   dT = dS moved back to its places,   dqv = dT R,  dR = dTᵀ qv
// K and R are scaled when they are packed. dR is that of one sequence; the caller adds them up, so that the bits do not
// depend on threads. Tested against plain loops, tests/oracle/transformer_xl.hpp.

#include <cairn/core/kernel_call.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/cpu/attention_operands.hpp>
#include <cairn/device/cpu/softmax.hpp>
#include <cairn/device/relative_attention_geometry.hpp>

#include <algorithm>
#include <cmath>
#include <limits>

namespace cairn {

namespace attention_detail {

/// The operands of one head of one sequence, packed, and a strip of rows at work.
template <class T>
class relative_head {
public:
    using S = simd::arithmetic<T>;

    relative_head(const relative_attention_geometry& geometry, bool backward, S* room) : g(geometry) {
        arrays<S> cut{room};
        for (S** to : {&k_panels_, &r_panels_}) *to = cut.take(columns() * g.head_dim);
        v_ = cut.take(g.keys() * wide());
        for (S** to : {&qu_, &qv_, &out_}) *to = cut.take(strip * wide());
        for (S** to : {&s_, &t_}) *to = cut.take(strip * pitch());
        k_ = cut.take(g.keys() * wide());
        r_ = cut.take(g.keys() * wide());
        if (!backward) return;
        v_panels_ = cut.take(columns() * g.head_dim);
        for (S** to : {&dk_, &dv_, &dr_}) *to = cut.take(g.keys() * wide());
        dy_ = cut.take(strip * wide());
        ds_ = cut.take(strip * pitch());
    }
    /// Numbers that `room` must have.
    static index_t room(const relative_attention_geometry& g, bool backward) {
        const index_t wide = padded<S>(g.head_dim), all = rounded(g.keys(), panel);
        const index_t rows = strip * wide, scores = strip * (all + 16), keys = g.keys() * wide,
                      panels = all * g.head_dim;
        return 2 * panels + 3 * keys + 3 * rows + 2 * scores + (backward ? panels + 3 * keys + rows + scores : 0) +
               16 * 32;
    }

    void load(index_t n, index_t h, const T* kv, const T* r, bool backward) {
        const S scale = static_cast<S>(g.factor());
        pad_rows(g.keys(), g.head_dim, scale, kv + g.key(n, 0, h), 2 * g.width(), k_);
        pad_rows(g.keys(), g.head_dim, S{1}, kv + g.width() + g.key(n, 0, h), 2 * g.width(), v_);
        pad_rows(g.keys(), g.head_dim, scale, r + g.place(0, h), g.width(), r_);
        pack(k_, k_panels_);
        pack(r_, r_panels_);
        if (!backward) return;
        pack(v_, v_panels_);
        for (S* sums : {dk_, dv_, dr_}) std::fill_n(sums, g.keys() * wide(), S{});
    }

    void forward(index_t n, index_t h, const T* qu, const T* qv, T* y, S* lse) {
        for (index_t i = 0; i < g.length; i += strip) {
            const index_t high = std::min(strip, g.length - i), met = g.memory + i + high;
            score(n, h, i, high, qu, qv);
            S totals[strip];
            for (index_t r = 0; r < high; ++r) {
                S* const row = s_ + r * pitch();
                constexpr S nothing = -std::numeric_limits<S>::infinity();
                hide(g.memory + i + r + 1, rounded(met, panel), row, nothing);
                std::fill_n(row, g.begin, nothing);
                const S most = cairn::detail::row_max(rounded(met, panel), row);
                totals[r] = cairn::detail::row_exp(rounded(met, panel), row, most, row);
                if (lse) lse[i + r] = most + std::log(totals[r]);
            }
            multiply<S>(high, wide(), met, {s_, pitch(), 1}, {v_, wide()}, false, out_, wide());
            for (index_t r = 0; r < high; ++r)
                copy_rows(1, g.head_dim, S{1} / totals[r], out_ + r * wide(), wide(), y + g.row(n, i + r, h),
                          g.width());
        }
    }

    /// Sets dqu and dqv, adds to the sums over rows that store() writes.
    void backward(index_t n, index_t h, const T* qu, const T* qv, const T* y, const S* lse, const T* dy, T* dqu,
                  T* dqv) {
        for (index_t i = 0; i < g.length; i += strip) {
            const index_t high = std::min(strip, g.length - i), met = g.memory + i + high, first = first_place(i, high),
                          places = g.keys() - first;
            score(n, h, i, high, qu, qv);
            pad_rows(high, g.head_dim, S{1}, dy + g.row(n, i, h), g.width(), dy_);
            multiply<S>(high, rounded(met, panel), g.head_dim, {dy_, wide(), 1}, panels(v_panels_), false, ds_,
                        pitch());
            for (index_t r = 0; r < high; ++r) {
                const index_t at = g.row(n, i + r, h);
                differentiate(i + r, rounded(met, panel), lse[i + r],
                              cairn::detail::row_dot(g.head_dim, y + at, dy + at), s_ + r * pitch(), ds_ + r * pitch());
                S* const moved = t_ + r * pitch();
                const index_t shift = g.shift(i + r) - first, keys = g.memory + i + r + 1;
                std::fill_n(moved, shift, S{});
                std::copy_n(ds_ + r * pitch(), keys, moved + shift);
                std::fill(moved + shift + keys, moved + std::max(places, shift + keys), S{});
            }
            multiply<S>(met, wide(), high, {s_, 1, pitch()}, {dy_, wide()}, true, dv_, wide());
            multiply<S>(met, wide(), high, {ds_, 1, pitch()}, {qu_, wide()}, true, dk_, wide());
            multiply<S>(places, wide(), high, {t_, 1, pitch()}, {qv_, wide()}, true, dr_ + first * wide(), wide());
            multiply<S>(high, wide(), met, {ds_, pitch(), 1}, {k_, wide()}, false, out_, wide());
            copy_rows(high, g.head_dim, S{1}, out_, wide(), dqu + g.row(n, i, h), g.width());
            multiply<S>(high, wide(), places, {t_, pitch(), 1}, {r_ + first * wide(), wide()}, false, out_, wide());
            copy_rows(high, g.head_dim, S{1}, out_, wide(), dqv + g.row(n, i, h), g.width());
        }
    }
    void store(index_t n, index_t h, T* dkv, T* dr) const {
        const S scale = static_cast<S>(g.factor());
        copy_rows(g.keys(), g.head_dim, scale, dk_, wide(), dkv + g.key(n, 0, h), 2 * g.width());
        copy_rows(g.keys(), g.head_dim, S{1}, dv_, wide(), dkv + g.width() + g.key(n, 0, h), 2 * g.width());
        copy_rows(g.keys(), g.head_dim, scale, dr_, wide(), dr + n * g.keys() * g.width() + g.place(0, h), g.width());
    }

private:
    static constexpr index_t panel = builtin::panel_columns<S>;

    index_t wide() const { return padded<S>(g.head_dim); }
    index_t columns() const { return rounded(g.keys(), panel); }
    index_t pitch() const { return columns() + 16; }  // hide() may write behind a row
    right<S> panels(const S* at) const { return {at, panel, g.head_dim * panel}; }
    void pack(const S* rows, S* to) const {
        builtin::pack_rows(true, 0, g.head_dim, g.head_dim, g.keys(), rows, wide(), to);
    }
    /// The first place of T that rows [i, i + high) need, rounded down to a panel.
    index_t first_place(index_t i, index_t high) const { return g.shift(i + high - 1) / panel * panel; }

    /// S of rows [i, i + high), their keys alone.
    void score(index_t n, index_t h, index_t i, index_t high, const T* qu, const T* qv) {
        const index_t first = first_place(i, high);
        pad_rows(high, g.head_dim, S{1}, qu + g.row(n, i, h), g.width(), qu_);
        pad_rows(high, g.head_dim, S{1}, qv + g.row(n, i, h), g.width(), qv_);
        multiply<S>(high, rounded(g.memory + i + high, panel), g.head_dim, {qu_, wide(), 1}, panels(k_panels_), false,
                    s_, pitch());
        multiply<S>(high, columns() - first, g.head_dim, {qv_, wide(), 1}, panels(r_panels_ + first * g.head_dim),
                    false, t_, pitch());
        for (index_t r = 0; r < high; ++r) {
            S* const to = s_ + r * pitch();
            const S* const from = t_ + r * pitch() + g.shift(i + r) - first;
            const index_t keys = g.memory + i + r + 1;
#pragma omp simd
            for (index_t j = 0; j < keys; ++j) to[j] += from[j];
        }
    }

    /// Scores become P, dP becomes dS.
    void differentiate(index_t i, index_t columns, S log, S product, S* p, S* ds) const {
        for (index_t c = 0; c < columns; c += simd::lanes<S>) {
            simd::pack<S> weight = simd::load(p + c);
            for (auto& part : weight.part) part = vector_math::exp_nonpositive(part - log);
            simd::store(p + c, weight);
            simd::store(ds + c, weight * (simd::load(ds + c) - product));
        }
        for (S* row : {p, ds}) {
            hide(g.memory + i + 1, columns, row, S{});
            std::fill_n(row, g.begin, S{});
        }
    }

    const relative_attention_geometry& g;
    S *k_panels_, *r_panels_, *v_panels_ = nullptr;    // transposed, as right factors
    S *k_, *r_, *v_;                                   // (K, padded)
    S *qu_, *qv_, *dy_ = nullptr, *out_;               // (strip, padded)
    S *s_, *t_, *ds_ = nullptr;                        // (strip, pitch)
    S *dk_ = nullptr, *dv_ = nullptr, *dr_ = nullptr;  // (K, padded)
};

template <class T>
kernel_call call_of(const char* kind, const relative_attention_geometry& g, double flops, double bytes) {
    return kernel_call(kind, format_name<T>, flops, bytes, {g.batch, g.length, g.memory, g.heads, g.head_dim});
}

}  // namespace attention_detail

/// y (batch, length, heads, head_dim) and lse (batch, heads, length), or null where no backward follows. kv (batch,
/// keys, 2, heads, head_dim).
template <class T, class S = simd::arithmetic<T>>
void relative_attention_forward(cpu, const relative_attention_geometry& g, const T* qu, const T* qv, const T* kv,
                                const T* r, T* y, std::type_identity_t<S>* lse) {
    using namespace attention_detail;
    g.check();
    const kernel_call call = attention_detail::call_of<T>("relative attention forward", g, g.forward_flops(),
                                                          g.forward_bytes(sizeof(T), sizeof(S)));
    thread_rooms<S> rooms(relative_head<T>::room(g, false));
    parallel_tasks(g.batch * g.heads, [&](index_t head) {
        const index_t n = head / g.heads, h = head % g.heads;
        relative_head<T> at(g, false, rooms.here());
        at.load(n, h, kv, r, false);
        at.forward(n, h, qu, qv, y, lse ? lse + head * g.length : nullptr);
    });
}

/// Sets dqu, dqv, dkv and dr (batch, keys, heads, head_dim), r's gradient of each sequence.
template <class T, class S>
void relative_attention_backward(cpu, const relative_attention_geometry& g, const T* qu, const T* qv, const T* kv,
                                 const T* r, const T* y, const S* lse, const T* dy, T* dqu, T* dqv, T* dkv, T* dr) {
    using namespace attention_detail;
    g.check();
    const kernel_call call = attention_detail::call_of<T>("relative attention backward", g, g.backward_flops(),
                                                          g.backward_bytes(sizeof(T), sizeof(S)));
    thread_rooms<S> rooms(relative_head<T>::room(g, true));
    parallel_tasks(g.batch * g.heads, [&](index_t head) {
        const index_t n = head / g.heads, h = head % g.heads;
        relative_head<T> at(g, true, rooms.here());
        at.load(n, h, kv, r, true);
        at.backward(n, h, qu, qv, y, lse + head * g.length, dy, dqu, dqv);
        at.store(n, h, dkv, dr);
    });
}

}  // namespace cairn
