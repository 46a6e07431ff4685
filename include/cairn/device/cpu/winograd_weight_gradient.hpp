#pragma once
// Winograd's weight gradient: dw = G^T [ sum over tiles of (B^T d B) . (A dY A^T) ] G, where "." is, for each position,
// a product of (c_out x tiles) by (tiles x c_in). Two orders of the same work, see weight_plan.

#include <algorithm>
#include <cairn/device/cpu/winograd_filter.hpp>
#include <cairn/device/cpu/winograd_forward.hpp>
#include <cairn/device/cpu/winograd_gemm.hpp>
#include <cairn/device/cpu/winograd_plan.hpp>
#include <cairn/device/cpu/winograd_tiles.hpp>

namespace cairn::winograd {

/// A dY A^T of block b, rows [begin, end).
template <int M, class I, class T>
void transform_gradient(const plan_base<T>& plan, const I* dy, const T* zeros, const block& b, index_t begin,
                        index_t end, const spectrum<T>& z) {
    transform_tiles<M, M>(output_images(plan.g, dy), plan.tiles, b, b.depth, 0, 0, begin, end, zeros_of<I>(zeros), z,
                          [](const auto& d, auto& u) { transform_output_gradient<M, T>(d, u); });
}

/// A rectangle of channel blocks: input [in, in + ins), output [out, out + outs).
struct rectangle {
    index_t in, ins, out, outs;
};

/// sums += V^T Z (= if not `add`) of one block of tiles.
template <class T>
void sum_products(const weight_plan<T>& plan, const block& b, const spectrum<T>& v, const spectrum<T>& z,
                  const rectangle& c, const filter_sums<T>& sums, bool add) {
    constexpr index_t l = lanes<T>;
    const auto v_at = [&](index_t p, index_t in) { return v.data + p * v.position + (c.in + in) * v.block; };
    const auto z_at = [&](index_t p, index_t out) { return z.data + p * z.position + (c.out + out) * z.block; };
    for (index_t p = 0; p < plan.positions; ++p)
        for (index_t kd = 0; kd < plan.g.kernel[0]; ++kd)
            for (index_t in = 0; in < c.ins; in += 2)  // two blocks of V stay in L1 while Z passes
                for (index_t out = 0; out < c.outs; ++out) {
                    // Meanwhile the next position's Z, then its V, comes nearer, a block a product.
                    const index_t next = std::min(p + 1, plan.positions - 1), products = in / 2 * c.outs + out;
                    const T* const ahead =
                        products < c.outs ? z_at(next, products) : v_at(next, std::min(products - c.outs, c.ins - 1));
                    gemm_rows<T, 1, l>({1, 0, 1, 0, b.rows(), ahead}, l, std::min<index_t>(2, c.ins - in), z_at(p, out),
                                       v_at(p, in) + kd * b.columns * l, v.block,
                                       sums.data + p * sums.position + kd * sums.depth + in * sums.block + out * l * l,
                                       sums.block, add);
                }
}

/// dw = G^T (sum over chunks) G (+ dw if `add`). Chunks are plan.sum_elements apart.
template <int M, class T>
void collect_sums(const weight_plan<T>& plan, const rectangle& c, index_t kd, const filter_sums<T>& sums, T* dw,
                  bool add) {
    constexpr index_t l = lanes<T>;
    for (index_t co = 0; co < std::min(c.outs * l, plan.g.c_out - c.out * l); ++co)
        for (index_t in = 0; in < c.ins; ++in) {
            const T* const first = sums.data + kd * sums.depth + in * sums.block + co * l;
            collect_filter_gradient<M>(plan.g, dw, c.out * l + co, kd, c.in + in, add, [&](index_t p) {
                vec<T> total = load(first + p * sums.position);
                for (index_t chunk = 1; chunk < plan.chunks; ++chunk)
                    total += load(first + p * sums.position + chunk * plan.sum_elements);
                return total;
            });
        }
}

template <int M, class I, class T>
void backward_weight_chunked(const weight_plan<T>& plan, const I* x, const I* dy, T* dw, bool add, int threads) {
    constexpr index_t l = lanes<T>;
    const index_t depth = plan.g.kernel[0];
    const rectangle all{0, plan.blocks_in, 0, plan.blocks_out};
    const auto sums_at = [&](T* data) { return filter_sums<T>::at(data, depth, plan.blocks_in, plan.blocks_out); };
    run_tasks(threads, plan.chunks, [&](index_t chunk, int thread) {
        T* const scratch = plan.scratch + thread * plan.scratch_elements;
        const index_t begin = plan.count() * chunk / plan.chunks, end = plan.count() * (chunk + 1) / plan.chunks;
        for (index_t i = begin; i < end; ++i) {
            const block b = plan.at(i);
            const auto v = spectrum<T>::at(scratch, b.input_rows(depth), plan.blocks_in);
            const auto z = spectrum<T>::at(scratch + plan.input_elements(), b.rows(), plan.blocks_out);
            transform_input<M>(plan, x, plan.zeros, b, 0, b.input_rows(depth), v);
            transform_gradient<M>(plan, dy, plan.zeros, b, 0, b.rows(), z);
            sum_products(plan, b, v, z, all, sums_at(plan.sums + chunk * plan.sum_elements), i > begin);
        }
    });
    run_tasks(threads, plan.blocks_out * depth, [&](index_t task, int) {
        const index_t out = task / depth;
        const rectangle band{0, plan.blocks_in, out, 1};
        filter_sums<T> sums = sums_at(plan.sums);
        sums.data += out * l * l;
        collect_sums<M>(plan, band, task % depth, sums, dw, add);
    });
}

template <int M, class I, class T>
void backward_weight_joint(const weight_plan<T>& plan, const I* x, const I* dy, T* dw, bool add, int threads) {
    constexpr index_t rows_a_task = 8, square = weight_plan<T>::square;
    const index_t depth = plan.g.kernel[0];
    for (index_t i = 0; i < plan.count(); ++i) {
        const block b = plan.at(i);
        const index_t input_rows = b.input_rows(depth), input_tasks = ceil_div(input_rows, rows_a_task);
        const auto v = spectrum<T>::at(plan.scratch, input_rows, plan.blocks_in);
        const auto z = spectrum<T>::at(plan.scratch + plan.input_elements(), b.rows(), plan.blocks_out);
        run_tasks(threads, input_tasks + ceil_div(b.rows(), rows_a_task), [&](index_t task, int) {
            const bool input = task < input_tasks;
            const index_t begin = (input ? task : task - input_tasks) * rows_a_task;
            const index_t end = std::min(input ? input_rows : b.rows(), begin + rows_a_task);
            if (input)
                transform_input<M>(plan, x, plan.zeros, b, begin, end, v);
            else
                transform_gradient<M>(plan, dy, plan.zeros, b, begin, end, z);
        });
        run_tasks(threads, plan.squares(), [&](index_t task, int thread) {
            const index_t in = task % plan.squares_across() * square, out = task / plan.squares_across() * square;
            const rectangle c{in, std::min(square, plan.blocks_in - in), out, std::min(square, plan.blocks_out - out)};
            const auto sums = filter_sums<T>::at(plan.sums + (plan.local_sums() ? thread : task) * plan.sum_elements,
                                                 depth, square, square);
            sum_products(plan, b, v, z, c, sums, i > 0);
            if (i + 1 == plan.count())
                for (index_t kd = 0; kd < depth; ++kd) collect_sums<M>(plan, c, kd, sums, dw, add);
        });
    }
}

template <int M, class I, class T>
void backward_weight(const weight_plan<T>& plan, const I* x, const I* dy, T* dw, bool add, int threads) {
    if (on_phantom_rank()) return;
    std::fill_n(plan.zeros, std::max(plan.blocks_in, plan.blocks_out) * lanes<T>, T(0));
    if (plan.joint)
        backward_weight_joint<M>(plan, x, dy, dw, add, threads);
    else
        backward_weight_chunked<M>(plan, x, dy, dw, add, threads);
}

}  // namespace cairn::winograd
