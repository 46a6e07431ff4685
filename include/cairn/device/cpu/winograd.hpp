#pragma once
// Winograd convolution, channels last: kernel 3 x 3 (or KD x 3 x 3), stride 1, tiles of 4 x 4 or 2 x 2 outputs.
// Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", CVPR 2016. The transforms and their error are in
// winograd_transform.hpp.
//
//   U[p] = (G g G^T)[p]                    c_in x c_out       filters, once a call
//   for each block of tiles, in one thread's cache:
//       V[p] = (B^T d B)[p]                tiles x c_in
//       Y[p] = V[p] U[p]                   36 (m = 4) or 16 (m = 2) products; summed over kernel depth as well
//       y    = A^T Y A + bias
//
// Input gradient: the same with rotated, transposed filters and padding 2 - pad. Weight gradient: the transposed map,
//   dw = G^T [ sum over tiles of V[p]^T (A dY A^T)[p] ] G.
// Memory traffic: x and y once, w and U once; transformed tiles stay in the caches.
// Images and filters in bfloat16 are transformed, multiplied and summed in float; weight gradients are of float.
// Results are the same bits for any number of threads. Tested against tests/oracle/conv.hpp.

#include <cairn/core/error.hpp>
#include <cairn/core/parallel.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/simd_bfloat16.hpp>
#include <cairn/device/cpu/winograd_forward.hpp>
#include <cairn/device/cpu/winograd_plan.hpp>
#include <cairn/device/cpu/winograd_weight_gradient.hpp>
#include <cstdint>

namespace cairn {

/// Whether the Winograd kernels can compute this convolution with m x m tiles, m = `tile` = 2 or 4.
inline bool winograd_applies(const conv_geometry& g, int tile) {
    if ((tile != 2 && tile != 4) || g.groups != 1 || g.kernel[1] != 3 || g.kernel[2] != 3) return false;
    for (std::size_t axis = 0; axis < 3; ++axis)
        if (g.stride[axis] != 1 || g.dilation[axis] != 1 || g.pad[axis] < 0 || g.pad[axis] >= g.kernel[axis] ||
            g.out[axis] < 1 || g.out[axis] != g.output_size(axis))
            return false;
    return g.n > 0 && g.c_in > 0 && g.c_out > 0;
}

namespace winograd {

inline void check(const conv_geometry& g, int tile, const void* workspace, int threads) {
    require(winograd_applies(g, tile), "winograd: F(", tile, "x", tile, ", 3x3) cannot compute ", g.to_string(),
            "; it needs tile 2 or 4, kernel kx3x3, stride 1, dilation 1, groups 1, pad < kernel");
    require(threads >= 1, "winograd: ", threads, " threads asked for ", g.to_string(), "; at least 1 is needed");
    require(workspace && reinterpret_cast<std::uintptr_t>(workspace) % 64 == 0, "winograd: the workspace for ",
            g.to_string(), " must be aligned to 64 bytes; see winograd_workspace_bytes()");
}

}  // namespace winograd

/// Bytes of workspace that a phase needs, for elements of type I. Depends on the threads.
template <class I = float, class T = simd::arithmetic<I>>
index_t winograd_workspace_bytes(const conv_geometry& g, conv_phase phase, int tile, int threads = cairn::threads()) {
    switch (phase) {
        case conv_phase::forward:
            return winograd::forward_plan<T>(g, tile, threads, nullptr).bytes;
        case conv_phase::backward_input:
            return winograd::forward_plan<T>(winograd::input_gradient_geometry(g), tile, threads, nullptr).bytes;
        default:
            return winograd::weight_plan<T>(g, tile, threads, nullptr).bytes;
    }
}

/// y (n, out..., c_out) = x (n, in..., c_in) * w (c_out, kernel..., c_in) + bias (c_out, or null). `tile` is 2 or 4,
/// `workspace` has winograd_workspace_bytes(..., threads) bytes on a 64-byte boundary. Throws error if the shape does
/// not suit, see winograd_applies().
template <class I, class T = simd::arithmetic<I>>
void winograd_forward(const conv_geometry& g, const I* x, const I* w, const I* bias, I* y, int tile, void* workspace,
                      int threads = cairn::threads()) {
    winograd::check(g, tile, workspace, threads);
    const winograd::forward_plan<T> plan(g, tile, threads, workspace);
    tile == 4 ? winograd::forward<4, false>(g, plan, x, w, bias, y, threads)
              : winograd::forward<2, false>(g, plan, x, w, bias, y, threads);
}

/// dx (n, in..., c_in) = gradient of <dy, x * w> with respect to x; otherwise as winograd_forward().
template <class I, class T = simd::arithmetic<I>>
void winograd_backward_input(const conv_geometry& g, const I* dy, const I* w, I* dx, int tile, void* workspace,
                             int threads = cairn::threads()) {
    winograd::check(g, tile, workspace, threads);
    const winograd::forward_plan<T> plan(winograd::input_gradient_geometry(g), tile, threads, workspace);
    const I* const no_bias = nullptr;
    tile == 4 ? winograd::forward<4, true>(g, plan, dy, w, no_bias, dx, threads)
              : winograd::forward<2, true>(g, plan, dy, w, no_bias, dx, threads);
}

/// dw (c_out, kernel..., c_in) = gradient of <dy, x * w> with respect to w, added to its old content if `accumulate`;
/// otherwise as winograd_forward().
template <class I, class T>
void winograd_backward_weight(const conv_geometry& g, const I* x, const I* dy, T* dw, bool accumulate, int tile,
                              void* workspace, int threads = cairn::threads()) {
    winograd::check(g, tile, workspace, threads);
    const winograd::weight_plan<T> plan(g, tile, threads, workspace);
    tile == 4 ? winograd::backward_weight<4>(plan, x, dy, dw, accumulate, threads)
              : winograd::backward_weight<2>(plan, x, dy, dw, accumulate, threads);
}

}  // namespace cairn
