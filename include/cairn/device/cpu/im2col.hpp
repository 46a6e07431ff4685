#pragma once
// Convolution as matrix products on patches (im2col; Chellapilla, Puri and Simard, 2006), channels last, 1D to 3D, any
// stride, padding, dilation and groups, forward and both gradients. For group q, with K = kernel points · c_in /
// groups:
//
//   patches[p] = the K inputs that output point p reads, zeros outside     (rows × K), a block of rows at a time
//   forward          y[:, q] = patches wᵀ[q] + bias
//   input gradient   patches = dy[:, q] w[q], each number added to the input that it came from (col2im)
//   weight gradient  dw[q]  += dy[:, q]ᵀ patches
//
// A block of patches fits in the second-level cache, so that patches cost cache traffic only. Points of a 1×1 kernel
// with stride 1 are their own patches: nothing is copied. Blocks are cut by the size of the data, and partial weight
// gradients added in order; so results depend on the number of threads only if the GEMM's do.

#include <cairn/core/parallel.hpp>
#include <cairn/core/tensor.hpp>
#include <cairn/core/thread_rooms.hpp>
#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/cpu/gemm.hpp>

#include <algorithm>

namespace cairn::im2col {

/// Whether the input itself is the matrix of patches.
inline bool is_pointwise(const conv_geometry& g) {
    const std::array<index_t, 3> ones{1, 1, 1};
    return g.kernel == ones && g.stride == ones && g.pad == std::array<index_t, 3>{0, 0, 0};
}

/// Calls visit(row, tap, point) for output points [begin, end) of the batch: kernel tap `tap` of row begin + row reads
/// input point `point` of the batch, −1 for padding. Taps of a row come in order.
template <class Visit>
void for_each_tap(const conv_geometry& g, index_t begin, index_t end, Visit visit) {
    index_t ow = begin % g.out[2], rest = begin / g.out[2];
    index_t oh = rest % g.out[1];
    rest /= g.out[1];
    index_t od = rest % g.out[0], image = rest / g.out[0];
    for (index_t row = 0; row < end - begin; ++row) {
        index_t tap = 0;
        for (index_t kd = 0; kd < g.kernel[0]; ++kd) {
            const index_t d = od * g.stride[0] + kd * g.dilation[0] - g.pad[0];
            for (index_t kh = 0; kh < g.kernel[1]; ++kh) {
                const index_t h = oh * g.stride[1] + kh * g.dilation[1] - g.pad[1];
                const bool inside = d >= 0 && d < g.in[0] && h >= 0 && h < g.in[1];
                const index_t line = ((image * g.in[0] + d) * g.in[1] + h) * g.in[2];
                for (index_t kw = 0; kw < g.kernel[2]; ++kw, ++tap) {
                    const index_t w = ow * g.stride[2] + kw * g.dilation[2] - g.pad[2];
                    visit(row, tap, inside && w >= 0 && w < g.in[2] ? line + w : -1);
                }
            }
        }
        if (++ow < g.out[2]) continue;
        ow = 0;
        if (++oh < g.out[1]) continue;
        oh = 0;
        if (++od < g.out[0]) continue;
        od = 0;
        ++image;
    }
}

/// patches (end − begin, kernel points, channels of one group) of output points [begin, end); x starts at the group's
/// channel.
template <class T>
void gather(const conv_geometry& g, const T* x, index_t begin, index_t end, T* patches) {
    const index_t channels = g.c_in / g.groups, taps = g.kernel_points();
    for_each_tap(g, begin, end, [&](index_t row, index_t tap, index_t point) {
        T* to = patches + (row * taps + tap) * channels;
        if (point < 0) {
            for (index_t c = 0; c < channels; ++c) to[c] = T{};
        } else {
            const T* from = x + point * g.c_in;
            for (index_t c = 0; c < channels; ++c) to[c] = from[c];
        }
    });
}

/// The adjoint of gather: adds each number of the patches to the input that it stands for.
template <class T>
void scatter_add(const conv_geometry& g, const T* patches, index_t begin, index_t end, T* dx) {
    const index_t channels = g.c_in / g.groups, taps = g.kernel_points();
    for_each_tap(g, begin, end, [&](index_t row, index_t tap, index_t point) {
        if (point < 0) return;
        const T* from = patches + (row * taps + tap) * channels;
        T* to = dx + point * g.c_in;
        for (index_t c = 0; c < channels; ++c) to[c] += from[c];
    });
}

/// Sizes of one group's matrices.
struct plan {
    explicit plan(const conv_geometry& g, index_t element_bytes)
        : points(g.n * g.out_points()),
          c_in(g.c_in / g.groups),
          c_out(g.c_out / g.groups),
          k(g.kernel_points() * c_in) {
        // Half a megabyte of patches, yet enough rows to repay the packing of the weights in each product, in whole
        // tiles; and enough blocks to go round the threads.
        const index_t fit = (index_t{1} << 19) / (k * element_bytes);
        block = std::clamp<index_t>(fit, 168, 4096);
        block = std::max<index_t>(std::min(block, points / 32), std::min<index_t>(points, 56));
    }
    index_t points, c_in, c_out, k;
    index_t block;
};

/// y = x * w + bias; bias may be null.
template <class T>
void forward(const conv_geometry& g, const T* x, const T* w, const T* bias, T* y) {
    const plan p(g, sizeof(T));
    const auto add_bias = [&](index_t begin, index_t end) {
        if (!bias) return;
        for (index_t row = begin; row < end; ++row)
            for (index_t c = 0; c < g.c_out; ++c) y[row * g.c_out + c] += bias[c];
    };
    if (is_pointwise(g)) {
        for (index_t q = 0; q < g.groups; ++q)
            gemm_detail::product<T>(true, {false, true, p.points, p.c_out, p.k, g.c_in, p.k, g.c_out}, T{1},
                                    x + q * p.c_in, w + q * p.c_out * p.k, T{}, y + q * p.c_out);
        return parallel_for(p.points, 1024, add_bias);
    }
    const gemm_size whole{false, true, p.block, p.c_out, p.k, p.k, p.k, g.c_out};
    gemm_detail::choose<T>(false, whole, nullptr, nullptr, nullptr);
    thread_rooms<T> rooms(p.block * p.k);
    if (on_phantom_rank()) return gemm_detail::product<T>(false, whole, T{1}, x, w, T{}, y);  // for its workspace
    parallel_for(p.points, p.block, [&](index_t begin, index_t end) {
        T* const patches = rooms.here();
        for (index_t q = 0; q < g.groups; ++q) {
            gather(g, x + q * p.c_in, begin, end, patches);
            gemm_size s = whole;
            s.m = end - begin;
            gemm_detail::product<T>(false, s, T{1}, patches, w + q * p.c_out * p.k, T{},
                                    y + begin * g.c_out + q * p.c_out);
        }
        add_bias(begin, end);
    });
}

/// dx = gradient of <dy, x * w> with respect to x.
template <class T>
void backward_input(const conv_geometry& g, const T* dy, const T* w, T* dx) {
    const plan p(g, sizeof(T));
    if (is_pointwise(g)) {
        for (index_t q = 0; q < g.groups; ++q)
            gemm_detail::product<T>(true, {false, false, p.points, p.c_in, p.c_out, g.c_out, p.c_in, g.c_in}, T{1},
                                    dy + q * p.c_out, w + q * p.c_out * p.k, T{}, dx + q * p.c_in);
        return;
    }
    // Patches of one image overlap, those of two never do: an image is one thread's. A lone image is shared in the
    // products.
    const bool threaded = g.n == 1;
    const gemm_size whole{false, false, std::min(p.block, g.out_points()), p.k, p.c_out, g.c_out, p.k, p.k};
    gemm_detail::choose<T>(threaded, whole, nullptr, nullptr, nullptr);
    thread_rooms<T> rooms(whole.m * p.k, !threaded);
    if (on_phantom_rank()) return gemm_detail::product<T>(threaded, whole, T{1}, dy, w, T{}, dx);  // for its workspace
    parallel_for(g.n, 1, [&](index_t first, index_t last) {
        T* const patches = rooms.here();
        std::fill(dx + first * g.in_points() * g.c_in, dx + last * g.in_points() * g.c_in, T{});
        for (index_t begin = first * g.out_points(); begin < last * g.out_points(); begin += whole.m) {
            const index_t end = std::min(begin + whole.m, last * g.out_points());
            for (index_t q = 0; q < g.groups; ++q) {
                gemm_size s = whole;
                s.m = end - begin;
                gemm_detail::product<T>(threaded, s, T{1}, dy + begin * g.c_out + q * p.c_out, w + q * p.c_out * p.k,
                                        T{}, patches);
                scatter_add(g, patches, begin, end, dx + q * p.c_in);
            }
        }
    });
}

/// dw += gradient of <dy, x * w> with respect to w; of W, in which products of T are summed.
template <class T, class W>
void backward_weight(const conv_geometry& g, const T* x, const T* dy, W* dw) {
    const plan p(g, sizeof(T));
    const index_t weights = g.w_elements();
    // dw[q] += dyᵀ patches over points [begin, end), block by block.
    const bool pointwise = is_pointwise(g);
    const auto block_of = [&](bool threaded, index_t points) {
        return pointwise ? points : threaded ? std::min(4 * p.block, p.points) : p.block;
    };
    const auto accumulate = [&](bool threaded, index_t begin, index_t end, T* patches, W* sum) {
        const index_t block = block_of(threaded, end - begin);
        for (index_t first = begin; first < end; first += block) {
            const index_t last = std::min(first + block, end);
            for (index_t q = 0; q < g.groups; ++q) {
                if (!pointwise)
                    parallel_for(last - first, threaded ? 32 : last - first, [&](index_t a, index_t b) {
                        gather(g, x + q * p.c_in, first + a, first + b, patches + a * p.k);
                    });
                const T* inputs = pointwise ? x + first * g.c_in + q * p.c_in : patches;
                gemm_detail::product(threaded,
                                     {true, false, p.c_out, p.k, last - first, g.c_out, pointwise ? g.c_in : p.k, p.k},
                                     W{1}, dy + first * g.c_out + q * p.c_out, inputs, W{1}, sum + q * p.c_out * p.k);
            }
        }
    };
    // Small gradients: points in 16 pieces, each with its own sum, added in order. Large ones fill the threads by
    // themselves.
    constexpr index_t most_pieces = 16;
    const index_t pieces = std::min(most_pieces, p.points / p.block);
    const bool whole = pieces < 2 || weights * static_cast<index_t>(sizeof(W)) > index_t{1} << 19;
    thread_rooms<T> rooms(pointwise ? 0 : block_of(whole, p.points) * p.k, !whole);
    if (whole) return accumulate(true, 0, p.points, rooms.here(), dw);
    gemm_detail::choose<T, W>(false, {true, false, p.c_out, p.k, p.block, g.c_out, p.k, p.k}, nullptr, nullptr,
                              nullptr);
    auto sums = tensor<W>::zeros({pieces, weights}, memory_category::workspace);
    parallel_chunks(pieces, 1, [&](index_t piece, index_t, index_t) {
        accumulate(false, piece * p.points / pieces, (piece + 1) * p.points / pieces, rooms.here(),
                   sums.data() + piece * weights);
    });
    if (on_phantom_rank()) accumulate(false, 0, p.points / pieces, rooms.here(), sums.data());  // for its workspace
    parallel_for(weights, 4096, [&](index_t begin, index_t end) {
        for (index_t i = begin; i < end; ++i) {
            W total = sums[i];
            for (index_t piece = 1; piece < pieces; ++piece) total += sums[piece * weights + i];
            dw[i] += total;
        }
    });
}

}  // namespace cairn::im2col
