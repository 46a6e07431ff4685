#pragma once
// Attention with relative positions on a grid device: names, arguments and results of
// device/cpu/relative_attention.hpp. A thread makes one number by a plain loop, in order, so that there are no atomics;
// scores lie in memory, (batch, heads, length, keys). Not fused: right on every device, not fast on any.

#include <cairn/core/flop_counter.hpp>
#include <cairn/device/grid/attention_tile.hpp>
#include <cairn/device/grid/for_each.hpp>
#include <cairn/device/relative_attention_geometry.hpp>

#include <cmath>
#include <limits>
#include <type_traits>

namespace cairn {

namespace grid {

/// A pair of a row and a key of one head.
struct relative_pair {
    index_t n, h, i, j;
    CAIRN_HD relative_pair(const relative_attention_geometry& g, index_t e)
        : n(e / (g.keys() * g.length * g.heads)),
          h(e / (g.keys() * g.length) % g.heads),
          i(e / g.keys() % g.length),
          j(e % g.keys()) {}
    CAIRN_HD bool attends(const relative_attention_geometry& g) const { return j >= g.begin && j <= g.memory + i; }
};

template <class S, class T>
CAIRN_HD S dot(index_t n, const T* a, const T* b) {
    S sum = 0;
    for (index_t c = 0; c < n; ++c) sum += static_cast<S>(a[c]) * static_cast<S>(b[c]);
    return sum;
}

/// s[n, h, i, j].
template <class T>
struct relative_scores {
    using S = sum_type<T>;
    relative_attention_geometry g;
    S scale;
    const T *qu, *qv, *k, *r;
    S* s;

    CAIRN_HD void operator()(index_t e) const {
        const relative_pair at(g, e);
        const index_t row = g.row(at.n, at.i, at.h);
        s[e] = !at.attends(g) ? -std::numeric_limits<S>::infinity()
                              : scale * (dot<S>(g.head_dim, qu + row, k + g.key(at.n, at.j, at.h)) +
                                         dot<S>(g.head_dim, qv + row, r + g.place(at.j + g.shift(at.i), at.h)));
    }
};

/// A row of scores becomes one of weights; lse, if it is not null, the logarithm of its sum.
template <class S>
struct relative_softmax {
    index_t keys;
    S *s, *lse;

    CAIRN_HD void operator()(index_t row) const {
        S* const p = s + row * keys;
        S most = p[keys - 1];
        for (index_t j = 0; j < keys; ++j) most = p[j] > most ? p[j] : most;
        S sum = 0;
        for (index_t j = 0; j < keys; ++j) sum += std::exp(p[j] - most);
        const S log = most + std::log(sum);
        for (index_t j = 0; j < keys; ++j) p[j] = std::exp(p[j] - log);
        if (lse) lse[row] = log;
    }
};

/// y[n, i, h, c].
template <class T>
struct relative_result {
    using S = sum_type<T>;
    relative_attention_geometry g;
    const S* p;
    const T* v;
    T* y;

    CAIRN_HD void operator()(index_t e) const {
        const index_t c = e % g.head_dim, h = e / g.head_dim % g.heads, i = e / g.width() % g.length,
                      n = e / g.width() / g.length;
        const S* const row = p + ((n * g.heads + h) * g.length + i) * g.keys();
        S sum = 0;
        for (index_t j = 0; j <= g.memory + i; ++j) sum += row[j] * static_cast<S>(v[g.key(n, j, h) + c]);
        y[e] = static_cast<T>(sum);
    }
};

/// Scores become P in their place; ds = scale P ∘ (dy Vᵀ − rowsum(dy ∘ y)).
template <class T>
struct relative_differences {
    using S = sum_type<T>;
    relative_attention_geometry g;
    S scale;
    const T *v, *y, *dy;
    const S* lse;
    S *p, *ds;

    CAIRN_HD void operator()(index_t e) const {
        const relative_pair at(g, e);
        const index_t row = g.row(at.n, at.i, at.h);
        const S weight = at.attends(g) ? std::exp(p[e] - lse[e / g.keys()]) : S{};
        p[e] = weight;
        ds[e] = scale * weight *
                (dot<S>(g.head_dim, dy + row, v + g.key(at.n, at.j, at.h)) - dot<S>(g.head_dim, dy + row, y + row));
    }
};

/// dqu and dqv of a row's number c.
template <class T>
struct relative_row_gradients {
    using S = sum_type<T>;
    relative_attention_geometry g;
    const T *k, *r;
    const S* ds;
    T *dqu, *dqv;

    CAIRN_HD void operator()(index_t e) const {
        const index_t c = e % g.head_dim, h = e / g.head_dim % g.heads, i = e / g.width() % g.length,
                      n = e / g.width() / g.length;
        const S* const row = ds + ((n * g.heads + h) * g.length + i) * g.keys();
        S of_key = 0, of_place = 0;
        for (index_t j = g.begin; j <= g.memory + i; ++j) {
            of_key += row[j] * static_cast<S>(k[g.key(n, j, h) + c]);
            of_place += row[j] * static_cast<S>(r[g.place(j + g.shift(i), h) + c]);
        }
        dqu[e] = static_cast<T>(of_key);
        dqv[e] = static_cast<T>(of_place);
    }
};

/// dk, dv and dr of number c of key, or place, j.
template <class T>
struct relative_key_gradients {
    using S = sum_type<T>;
    relative_attention_geometry g;
    const T *qu, *qv, *dy;
    const S *p, *ds;
    T *dkv, *dr;

    CAIRN_HD void operator()(index_t e) const {
        const index_t c = e % g.head_dim, h = e / g.head_dim % g.heads, j = e / g.width() % g.keys(),
                      n = e / g.width() / g.keys();
        S of_key = 0, of_value = 0, of_place = 0;
        for (index_t i = 0; i < g.length; ++i) {
            const index_t from = ((n * g.heads + h) * g.length + i) * g.keys(), row = g.row(n, i, h) + c;
            of_key += ds[from + j] * static_cast<S>(qu[row]);
            of_value += p[from + j] * static_cast<S>(dy[row]);
            const index_t key = j - g.shift(i);
            if (key >= 0) of_place += ds[from + key] * static_cast<S>(qv[row]);
        }
        dkv[g.key(n, j, h) + c] = static_cast<T>(of_key);
        dkv[g.key(n, j, h) + g.width() + c] = static_cast<T>(of_value);
        dr[e] = static_cast<T>(of_place);
    }
};

}  // namespace grid

/// As on the host. lse is float, double for double; null where no backward follows.
template <class T, GridDevice D>
void relative_attention_forward(D d, const relative_attention_geometry& g, const T* qu, const T* qv, const T* kv,
                                const T* r, T* y, std::type_identity_t<grid::sum_type<T>>* lse) {
    using S = grid::sum_type<T>;
    g.check();
    flop_counter::count(g.forward_flops(), g.forward_bytes(sizeof(T), sizeof(S)));
    const index_t rows = g.batch * g.heads * g.length;
    tensor<S, D> s({rows, g.keys()}, memory_category::workspace);
    grid::for_indices(d, s.size(), grid::relative_scores<T>{g, static_cast<S>(g.factor()), qu, qv, kv, r, s.data()});
    grid::for_indices(d, rows, grid::relative_softmax<S>{g.keys(), s.data(), lse}, 64);
    grid::for_indices(d, rows * g.head_dim, grid::relative_result<T>{g, s.data(), kv + g.width(), y});
}

/// As on the host.
template <class T, GridDevice D>
void relative_attention_backward(D d, const relative_attention_geometry& g, const T* qu, const T* qv, const T* kv,
                                 const T* r, const T* y, const std::type_identity_t<grid::sum_type<T>>* lse,
                                 const T* dy, T* dqu, T* dqv, T* dkv, T* dr) {
    using S = grid::sum_type<T>;
    g.check();
    flop_counter::count(g.backward_flops(), g.backward_bytes(sizeof(T), sizeof(S)));
    const index_t rows = g.batch * g.heads * g.length;
    const S scale = static_cast<S>(g.factor());
    tensor<S, D> p({rows, g.keys()}, memory_category::workspace), ds({rows, g.keys()}, memory_category::workspace);
    grid::for_indices(d, p.size(), grid::relative_scores<T>{g, scale, qu, qv, kv, r, p.data()});
    grid::for_indices(d, p.size(),
                      grid::relative_differences<T>{g, scale, kv + g.width(), y, dy, lse, p.data(), ds.data()});
    grid::for_indices(d, rows * g.head_dim, grid::relative_row_gradients<T>{g, kv, r, ds.data(), dqu, dqv});
    grid::for_indices(d, g.batch * g.keys() * g.width(),
                      grid::relative_key_gradients<T>{g, qu, qv, dy, p.data(), ds.data(), dkv, dr});
}

}  // namespace cairn
