#pragma once
// Winograd's forward convolution, and with rotated, transposed filters its input gradient: y = A^T [U . V] A + bias.
// Two orders of the same work, see forward_plan.

#include <algorithm>
#include <cairn/device/cpu/simd_bfloat16.hpp>
#include <cairn/device/cpu/winograd_filter.hpp>
#include <cairn/device/cpu/winograd_gemm.hpp>
#include <cairn/device/cpu/winograd_plan.hpp>
#include <cairn/device/cpu/winograd_tiles.hpp>
#include <cstdint>

namespace cairn::winograd {

/// Whether y is too large to be found in the caches by its next reader, and made of whole vectors.
template <class I>
bool stream_output(const conv_geometry& g, const I* y) {
    using T = simd::arithmetic<I>;
    constexpr index_t large = index_t{16} << 20, vector = lanes<T> * index_t(sizeof(I));
    return g.y_elements() * index_t(sizeof(I)) >= large && g.c_out % lanes<T> == 0 &&
           reinterpret_cast<std::uintptr_t>(y) % vector == 0;
}

/// The two images of a convolution: x or dx's side, and y's side.
template <class I>
images<I> input_images(const conv_geometry& g, I* x) {
    return {x, g.in[0], g.in[1], g.in[2], g.c_in};
}
template <class I>
images<I> output_images(const conv_geometry& g, I* y) {
    return {y, g.out[0], g.out[1], g.out[2], g.c_out};
}

/// Zeros for the channels of a pixel outside an image of I.
template <class I, class T>
const I* zeros_of(const T* zeros) {
    return reinterpret_cast<const I*>(zeros);
}

/// V of block b, rows [begin, end).
template <int M, class I, class T>
void transform_input(const plan_base<T>& plan, const I* x, const T* zeros, const block& b, index_t begin, index_t end,
                     const spectrum<T>& v) {
    const conv_geometry& g = plan.g;
    transform_tiles<M, M + 2>(input_images(g, x), plan.tiles, b, b.depth - g.pad[0], g.pad[1], g.pad[2], begin, end,
                              zeros_of<I>(zeros), v, [](const auto& d, auto& u) { transform_data<M, T>(d, u); });
}

/// y = x * w + bias on geometry plan.g, with w (of geometry `weights`) as it is or (Transposed) rotated and with its
/// channels exchanged. All filters are transformed first.
template <int M, bool Transposed, class I, class T>
void forward_kept(const conv_geometry& weights, const forward_plan<T>& plan, const I* x, const I* w, const I* bias,
                  I* y, int threads) {
    constexpr index_t l = lanes<T>;
    const index_t depth = plan.g.kernel[0];
    run_tasks(threads, plan.blocks_out * depth * plan.blocks_in, [&](index_t task, int) {
        const index_t in = task % plan.blocks_in, kd = task / plan.blocks_in % depth,
                      out = task / plan.blocks_in / depth;
        T* const u = plan.filters + out * plan.filter_block() + (kd * plan.blocks_in + in) * l * l;
        transform_filters<M, Transposed>(weights, w, out, in, kd, u, plan.filter_position());
    });
    const bool streamed = stream_output(plan.g, y);
    run_tasks(threads, plan.count(), [&](index_t task, int thread) {
        const block b = plan.at(task);
        T* const scratch = plan.scratch + thread * plan.scratch_elements;
        const auto v = spectrum<T>::at(scratch, b.input_rows(depth), plan.blocks_in);
        const auto product = spectrum<T>::at(scratch + plan.input_elements(), b.rows(), plan.blocks_out);
        transform_input<M>(plan, x, plan.zeros, b, 0, b.input_rows(depth), v);
        const summation sum{depth, b.columns * l, plan.blocks_in, v.block, l};
        for (index_t p = 0; p < plan.positions; ++p)
            gemm_rows<T, l, 1>(sum, b.rows(), plan.blocks_out, v.data + p * v.position,
                               plan.filters + p * plan.filter_position(), plan.filter_block(),
                               product.data + p * product.position, product.block, false);
        collect_tiles<M>(product, output_images(plan.g, y), plan.tiles, b, 0, plan.blocks_out, bias, streamed);
    });
}

/// As forward_kept(), but each piece of the filters is transformed right before its use.
template <int M, bool Transposed, class I, class T>
void forward_fused(const conv_geometry& weights, const forward_plan<T>& plan, const I* x, const I* w, const I* bias,
                   I* y, int threads) {
    using plan_type = forward_plan<T>;
    constexpr index_t l = lanes<T>, rows_a_task = 8;
    const index_t depth = plan.g.kernel[0];
    const bool streamed = stream_output(plan.g, y);
    for (index_t i = 0; i < plan.count(); ++i) {
        const block b = plan.at(i);
        const index_t input_rows = b.input_rows(depth);
        const auto v = spectrum<T>::at(plan.tiles_in, input_rows, plan.blocks_in);
        run_tasks(threads, ceil_div(input_rows, rows_a_task), [&](index_t task, int) {
            const index_t begin = task * rows_a_task;
            transform_input<M>(plan, x, plan.zeros, b, begin, std::min(input_rows, begin + rows_a_task), v);
        });
        run_tasks(threads, ceil_div(plan.blocks_out, plan_type::group), [&](index_t task, int thread) {
            const index_t out0 = task * plan_type::group, outs = std::min(plan_type::group, plan.blocks_out - out0);
            T* const u = plan.scratch + thread * plan.scratch_elements;
            const auto product = spectrum<T>::at(u + plan.positions * plan_type::piece_position(), b.rows(), outs);
            for (index_t kd = 0; kd < depth; ++kd)
                for (index_t in0 = 0; in0 < plan.blocks_in; in0 += plan_type::piece) {
                    const index_t ins = std::min(plan_type::piece, plan.blocks_in - in0);
                    for (index_t out = 0; out < outs; ++out)
                        for (index_t in = 0; in < ins; ++in)
                            transform_filters<M, Transposed>(weights, w, out0 + out, in0 + in, kd,
                                                             u + out * plan_type::piece_block() + in * l * l,
                                                             plan_type::piece_position());
                    const summation sum{1, 0, ins, v.block, l};
                    for (index_t p = 0; p < plan.positions; ++p)
                        gemm_rows<T, l, 1>(sum, b.rows(), outs,
                                           v.data + p * v.position + in0 * v.block + kd * b.columns * l,
                                           u + p * plan_type::piece_position(), plan_type::piece_block(),
                                           product.data + p * product.position, product.block, kd > 0 || in0 > 0);
                }
            collect_tiles<M>(product, output_images(plan.g, y), plan.tiles, b, out0, outs, bias, streamed);
        });
    }
}

template <int M, bool Transposed, class I, class T>
void forward(const conv_geometry& weights, const forward_plan<T>& plan, const I* x, const I* w, const I* bias, I* y,
             int threads) {
    if (on_phantom_rank()) return;
    std::fill_n(plan.zeros, plan.blocks_in * lanes<T>, T(0));
    if (plan.fused)
        forward_fused<M, Transposed>(weights, plan, x, w, bias, y, threads);
    else
        forward_kept<M, Transposed>(weights, plan, x, w, bias, y, threads);
}

}  // namespace cairn::winograd
