#pragma once
// U-Net (Ronneberger et al. 2015), in three dimensions as Çiçek et al. 2016 and nnU-Net (Isensee et al. 2021) have it:
// a class, or values, for each pixel or voxel.
//   level l of L, f = filters · 2^l:
//     twice (conv 3 → batch norm → ReLU) to f
//     unless l = L − 1:  ( x | max pool 2 → level l + 1 → transposed conv 2, stride 2, to f )  joined on channels,
//                        then twice (conv 3 → batch norm → ReLU) to f
//   and a convolution 1 to the classes
// Convolutions are padded, by zeros or, along periodic axes, by the other end: the output has the size of the input,
// whose axes are multiples of 2^(L − 1). In place of the transposed convolution may stand linear interpolation to twice
// the points and a convolution 1, which leaves no checkerboard (Odena et al. 2016).
// Each skip is a concat_skip around the levels below it, so that pipelines can cut the network anywhere.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/conv_transpose.hpp>
#include <cairn/nn/group_norm.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/resample.hpp>
#include <cairn/nn/sequential.hpp>

#include <numeric>

namespace cairn {

struct unet_config {
    index_t channels = 1;  // of the input
    index_t filters = 16;  // of the first level; each further one has twice as many
    int levels = 3;
    index_t classes = 2;
    int dims = 3;
    bool normalise = true;     // batch norm behind each convolution, which then has no bias
    bool group_norms = false;  // in place of batch norm, in up to 8 groups of channels
    periodic_axes periodic{};
    bool interpolate = false;  // in place of transposed convolutions
    init_rule init = init::pytorch;

    /// The number of which the axes of a sample must be multiples.
    index_t factor() const { return index_t{1} << (levels - 1); }
};

namespace detail {

/// Two convolutions with norm and ReLU, called conv<first> and conv<first + 1>.
template <class T, Device D>
void add_unet_block(sequential<T, D>& net, const unet_config& c, int first, index_t in, index_t out) {
    const bool circular = c.periodic != periodic_axes{};
    for (int i = first; i < first + 2; ++i, in = out) {
        if (circular)
            net.add(concat("pad", i),
                    circular_pad<T, D>({.pad = 1, .periodic = c.periodic, .dims = c.dims, .channels = in}));
        net.add(concat("conv", i), conv<T, D>({.in = in,
                                               .out = out,
                                               .kernel = 3,
                                               .pad = circular ? 0 : 1,
                                               .bias = !c.normalise,
                                               .dims = c.dims,
                                               .init = c.init}));
        if (c.normalise && !c.group_norms) {
            net.add(concat("bn", i), batch_norm<T, D>({.channels = out, .act = activation::relu}));
            continue;
        }
        if (c.normalise) net.add(concat("gn", i), group_norm<T, D>({.channels = out, .groups = std::gcd(out, 8)}));
        net.add(concat("relu", i), relu<T, D>());
    }
}

/// Appends level `level`, for an input of `in` channels.
template <class T, Device D>
void add_unet_level(sequential<T, D>& net, const unet_config& c, int level, index_t in) {
    const index_t filters = c.filters << level;
    add_unet_block(net, c, 1, in, filters);
    if (level + 1 == c.levels) return;
    sequential<T, D> below;
    below.add("pool", max_pool<T, D>({.kernel = 2, .dims = c.dims}));
    add_unet_level(below, c, level + 1, filters);
    if (c.interpolate) {
        below.add("interpolate", linear_upsample<T, D>({.periodic = c.periodic, .dims = c.dims}));
        below.add("up", conv<T, D>({.in = 2 * filters, .out = filters, .kernel = 1, .dims = c.dims, .init = c.init}));
    } else {
        below.add("up",
                  conv_transpose<T, D>(
                      {.in = 2 * filters, .out = filters, .kernel = 2, .stride = 2, .dims = c.dims, .init = c.init}));
    }
    net.add("down", concat_skip<T, D>(std::move(below)));
    add_unet_block(net, c, 3, 2 * filters, filters);
}

}  // namespace detail

/// (N, axes…, channels) → (N, axes…, classes). Throws on sizes that cannot be.
template <class T = float, Device D = cpu>
sequential<T, D> unet(const unet_config& c = {}) {
    require(c.levels >= 1 && c.levels <= 10 && c.filters >= 1 && c.channels >= 1 && c.classes >= 1, "unet: ", c.levels,
            " levels, ", c.filters, " filters, ", c.channels, " channels, ", c.classes,
            " classes; 1 to 10 levels and at least one of each other are needed");
    sequential<T, D> net;
    detail::add_unet_level(net, c, 0, c.channels);
    net.add("output", conv<T, D>({.in = c.filters, .out = c.classes, .kernel = 1, .dims = c.dims, .init = c.init}));
    return net;
}

CAIRN_COMPILED_NETWORK(unet(const unet_config&))

}  // namespace cairn
