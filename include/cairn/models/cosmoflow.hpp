#pragma once
// CosmoFlow (Mathuriya et al., SC'18; the form of MLPerf HPC): cosmological parameters from the density field.
//   blocks of  conv 3x3x3 + bias → max pooling 2 → leaky ReLU,  filters doubling,  then dense layers with dropout
// Leaky ReLU comes after the pooling: the maximum of a monotone function is the function of the maximum, on an eighth
// of the values.
// With dims = 2 the same network reads images.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// The defaults are the network of MLPerf HPC on half its side.
struct cosmoflow_config {
    index_t size = 64;     // side of the volume: a multiple of 2^blocks
    index_t channels = 4;  // of the input
    index_t filters = 16;  // of the first block; each further one has twice as many
    int blocks = 5;
    std::vector<index_t> dense{128, 64};
    index_t outputs = 3;
    double dropout = 0.5;  // 0: none
    double slope = 0.3;    // of leaky ReLU
    int dims = 3;
    index_t first_kernel = 3, first_stride = 1;  // of the first convolution; the stride divides size
    bool normalise = false;                      // batch norm behind each convolution, which then has no bias
    init_rule init = init::pytorch;
};

/// Makes the layers whose form depends on the placement of tensors: here all of each, on one rank. Other parts have the
/// same members (parallel/spatial/parts.hpp); they are called in the order of the network.
template <class T = float, Device D = cpu>
struct cosmoflow_parts {
    any_layer<T, D> conv(const typename cairn::conv<T, D>::config& c) { return cairn::conv<T, D>(c); }
    any_layer<T, D> norm(const typename batch_norm<T, D>::config& c) { return batch_norm<T, D>(c); }
    any_layer<T, D> pool(const typename max_pool<T, D>::config& c) { return max_pool<T, D>(c); }
    any_layer<T, D> flatten() { return cairn::flatten<T, D>(); }
    any_layer<T, D> dropout(double rate) { return cairn::dropout<T, D>(rate); }
};

/// The network with layers from `parts`; paths are those of the whole network.
template <class T, Device D, class Parts>
sequential<T, D> cosmoflow(const cosmoflow_config& c, Parts&& parts) {
    require(c.blocks >= 1 && c.first_kernel >= 1 && c.first_kernel % 2 == 1 && c.first_stride >= 1,
            "cosmoflow: ", c.blocks, " blocks, first kernel ", c.first_kernel, ", first stride ", c.first_stride,
            "; at least one block, an odd kernel and a positive stride are needed");
    const index_t least = c.first_stride << c.blocks;
    require(c.size > 0 && c.size % least == 0, "cosmoflow: size ", c.size, " must be a multiple of ", least, ", for ",
            c.blocks, " poolings by 2", c.first_stride > 1 ? concat(" behind a stride of ", c.first_stride) : "");
    sequential<T, D> net;
    index_t width = c.channels, filters = c.filters;
    for (int b = 1; b <= c.blocks; ++b, filters *= 2) {
        const index_t kernel = b == 1 ? c.first_kernel : 3;
        net.add(concat("conv", b), parts.conv({.in = width,
                                               .out = filters,
                                               .kernel = kernel,
                                               .stride = b == 1 ? c.first_stride : 1,
                                               .pad = kernel / 2,
                                               .bias = !c.normalise,
                                               .dims = c.dims,
                                               .init = c.init}));
        // The maximum and a batch norm do not commute, its gamma may be negative.
        if (c.normalise)
            net.add(concat("bn", b),
                    parts.norm({.channels = filters, .act = activation::leaky_relu, .slope = c.slope}));
        net.add(concat("pool", b), parts.pool({.kernel = 2, .dims = c.dims}));
        if (!c.normalise) net.add(concat("leaky", b), leaky_relu<T, D>(c.slope));
        width = filters;
    }
    net.add("flatten", parts.flatten());
    for (int axis = 0; axis < c.dims; ++axis) width *= c.size / least;
    int number = 0;
    for (index_t out : c.dense) {
        ++number;
        net.add(concat("fc", number), linear<T, D>({.in = std::exchange(width, out), .out = out, .init = c.init}));
        net.add(concat("fc", number, "_leaky"), leaky_relu<T, D>(c.slope));
        if (c.dropout > 0) net.add(concat("dropout", number), parts.dropout(c.dropout));
    }
    net.add("output", linear<T, D>({.in = width, .out = c.outputs, .init = c.init}));
    return net;
}

/// (N, size, size, size, channels) → (N, outputs). Throws if the size cannot be halved that often.
template <class T = float, Device D = cpu>
sequential<T, D> cosmoflow(const cosmoflow_config& c = {}) {
    return cosmoflow<T, D>(c, cosmoflow_parts<T, D>{});
}

CAIRN_COMPILED_NETWORK(cosmoflow(const cosmoflow_config&))

}  // namespace cairn
