#pragma once
// Transformed filters U = G g G^T, and the filter gradient from its transform.

#include <algorithm>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/winograd_transform.hpp>

namespace cairn::winograd {

/// Transforms the filters between `lanes` output and `lanes` input channels at one kernel depth.
/// Writes lanes consecutive steps k (input channels) of one vector (output channels): U(p, k) at u + p * position +
/// k * lanes.
///
/// Forward: from w(co, kd, kh, kw, ci) with co in `out_block`, ci in `in_block`.
/// Transposed (for the input gradient): the roles of ci and co are exchanged and the filter is rotated by half a turn,
/// so `out_block` counts blocks of c_in, `in_block` blocks of c_out.
template <int M, bool Transposed, class I, class T>
void transform_filters(const conv_geometry& g, const I* w, index_t out_block, index_t in_block, index_t kd, T* u,
                       index_t position) {
    constexpr index_t l = lanes<T>;
    const index_t co0 = (Transposed ? in_block : out_block) * l, ci0 = (Transposed ? out_block : in_block) * l;
    const index_t depth = Transposed ? g.kernel[0] - 1 - kd : kd, left = std::min(l, g.c_in - ci0);
    vec<T> taps[9][l];
    for (index_t tap = 0; tap < 9; ++tap) {
        vec<T>(&square)[l] = taps[Transposed ? 8 - tap : tap];
        for (index_t i = 0; i < l; ++i) {
            const index_t co = co0 + i;
            square[i] = co < g.c_out ? load(w + ((co * g.kernel[0] + depth) * 9 + tap) * g.c_in + ci0, left) : vec<T>{};
        }
        if constexpr (!Transposed) transpose<T>(square);
    }
    for (index_t k = 0; k < l; ++k)
        both_axes<3, M + 2, T>(
            [](const auto& f, auto& v) { transform_filter<M, T>(f, v); },
            [&](int i, int j) { return taps[i * 3 + j][k]; },
            [&](int i, int j, const vec<T>& v) { store(u + (i * (M + 2) + j) * position + k * l, v); });
}

/// dw(co, kd, :, :, ci...) = G^T u G (+ dw if `add`) for one output channel and one block of input channels.
/// `read(p)` gives the transformed gradient at position p.
template <int M, class T, class Read>
CAIRN_INLINE void collect_filter_gradient(const conv_geometry& g, T* dw, index_t co, index_t kd, index_t in_block,
                                          bool add, Read read) {
    const index_t left = std::min(lanes<T>, g.c_in - in_block * lanes<T>);
    T* const filter = dw + (co * g.kernel[0] + kd) * 9 * g.c_in + in_block * lanes<T>;
    both_axes<M + 2, 3, T>([](const auto& u, auto& f) { collect_filter<M, T>(u, f); },
                           [&](int i, int j) { return read(i * (M + 2) + j); },
                           [&](int i, int j, const vec<T>& v) {
                               T* const to = filter + (i * 3 + j) * g.c_in;
                               store(to, add ? vec<T>(load(to, left) + v) : v, left);
                           });
}

}  // namespace cairn::winograd
