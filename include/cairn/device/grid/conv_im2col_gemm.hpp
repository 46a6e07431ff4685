#pragma once
// Convolutions as matrix products of patches, for those that a library refuses: any geometry, any type, the same bits
// every time, several times as slow. A patch is what one output point sees of one group's channels:
//
//   patches (n out…, kernel… c), c = c_in / groups    y_g = patches w_gᵀ    dw_g = dy_gᵀ patches    dx = fold(dy_g w_g)
//
// fold sums, for each element of dx, what the patches that hold it say of it. Memory: patches of up to 256 MiB, in
// backward_input of one image at least. Bytes moved, beside the products': patches written and read once.

#include <cairn/device/conv_geometry.hpp>
#include <cairn/device/grid/conv_patches.hpp>
#include <cairn/device/grid/for_each.hpp>

#include <algorithm>
#include <cstddef>

namespace cairn {

namespace grid {

/// Patches of group `group`, (count, width): those of the output points from `first` on, counted over all images.
template <class T>
struct unfold_kernel {
    conv_geometry g;
    index_t group, first;
    const T* x;
    T* patches;

    CAIRN_HD void operator()(index_t i) const {
        const index_t channels = quotient(g.c_in, g.groups), width = g.kernel_points() * channels;
        const index_t row = quotient(i, width), column = i - row * width, tap = quotient(column, channels);
        patches[i] = patch_element(g, x, first + row, tap, group * channels + column - tap * channels);
    }
};

/// dx of group `group`, (images, in…, c_in), from what their patches say, (images out…, width).
template <class T, class S>
struct fold_kernel {
    conv_geometry g;
    index_t group;
    const S* patches;
    T* dx;

    CAIRN_HD void operator()(index_t i) const {
        const index_t channels = quotient(g.c_in, g.groups), place = quotient(i, channels),
                      channel = i - place * channels;
        dx[place * g.c_in + group * channels + channel] = static_cast<T>(sum(place, channels, channel));
    }

    CAIRN_HD S sum(index_t place, index_t channels, index_t channel) const {
        const index_t image = quotient(place, g.in_points());
        const grid_point point(g.in, place - image * g.in_points());
        S all{};
        for (index_t tap = 0; tap < g.kernel_points(); ++tap) {
            const grid_point taps(g.kernel, tap);
            index_t row = image;
            bool seen = true;
            for (std::size_t axis = 0; axis < 3; ++axis) {
                const index_t from = point.at[axis] + g.pad[axis] - taps.at[axis] * g.dilation[axis];
                const index_t out = from < 0 ? 0 : quotient(from, g.stride[axis]);
                seen = seen && from >= 0 && out * g.stride[axis] == from && out < g.out[axis];
                row = row * g.out[axis] + out;
            }
            if (seen) all += patches[(row * g.kernel_points() + tap) * channels + channel];
        }
        return all;
    }
};

inline constexpr index_t most_patch_bytes = index_t{256} << 20;

/// One phase of a convolution: x, w, y of which the phase overwrites one, as in the formulas above. `product(trans_a,
/// trans_b, m, n, k, a, lda, b, ldb, beta, c, ldc)`: c = op(a) op(b) + beta c, row-major, a and b of T, c of T or of
/// the type of sums; not counted as work.
template <class T, GridDevice D, class Product>
void conv_by_products(D d, conv_phase phase, const conv_geometry& g, T* x, T* w, T* y, Product&& product,
                      index_t most_bytes = most_patch_bytes) {
    using S = sum_type<T>;
    const index_t outputs = g.c_out / g.groups, width = g.kernel_points() * (g.c_in / g.groups);
    if (phase == conv_phase::backward_input) {
        const index_t image_rows = g.out_points(), images_at_once = std::clamp<index_t>(
                                                       most_bytes / (image_rows * width * index_t{sizeof(S)}), 1, g.n);
        tensor<S, D> patches({images_at_once * image_rows, width}, memory_category::workspace);
        for (index_t first = 0; first < g.n; first += images_at_once) {
            const index_t images = std::min(images_at_once, g.n - first), rows = images * image_rows;
            for (index_t group = 0; group < g.groups; ++group) {
                product(false, false, rows, width, outputs, y + first * image_rows * g.c_out + group * outputs, g.c_out,
                        w + group * outputs * width, width, S{}, patches.data(), width);
                for_indices(d, images * g.in_points() * (g.c_in / g.groups),
                            fold_kernel<T, S>{g, group, patches.data(), x + first * g.in_points() * g.c_in});
            }
        }
        return;
    }
    const index_t all = g.n * g.out_points(),
                  at_once = std::clamp<index_t>(most_bytes / (width * index_t{sizeof(T)}), 1, all);
    tensor<T, D> patches({at_once, width}, memory_category::workspace);
    tensor<S, D> sums({phase == conv_phase::forward ? 1 : g.w_elements()}, memory_category::workspace);
    for (index_t group = 0; group < g.groups; ++group)
        for (index_t first = 0; first < all; first += at_once) {
            const index_t rows = std::min(at_once, all - first);
            for_indices(d, rows * width, unfold_kernel<T>{g, group, first, x, patches.data()});
            T* const there = y + first * g.c_out + group * outputs;
            T* const weights = w + group * outputs * width;
            if (phase == conv_phase::forward)
                product(false, true, rows, outputs, width, patches.data(), width, weights, width, S{}, there, g.c_out);
            else
                product(true, false, outputs, width, rows, there, g.c_out, patches.data(), width, S(first > 0 ? 1 : 0),
                        sums.data() + group * outputs * width, width);
        }
    if (phase == conv_phase::backward_weight) for_each(d, g.w_elements(), functors::convert<T, S>{}, w, sums.data());
}

/// Calls f(geometry, first image) for parts of a batch of which no tensor has more than `most` elements, or that are
/// one image: libraries count in 32 bits. Parts but the last are multiples of eight images where they can be, so that
/// each begins as aligned as the whole.
template <class F>
void for_image_parts(const conv_geometry& g, index_t most, F&& f) {
    const index_t each = std::max(g.in_points() * g.c_in, g.out_points() * g.c_out);
    const index_t fit = std::max<index_t>(most / each, 1), at_once = fit >= g.n ? g.n : fit >= 8 ? fit / 8 * 8 : fit;
    for (index_t first = 0; first < g.n; first += at_once) {
        conv_geometry part = g;
        part.n = std::min(at_once, g.n - first);
        f(part, first);
    }
}

}  // namespace grid

}  // namespace cairn
