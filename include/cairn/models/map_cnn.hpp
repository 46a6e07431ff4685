#pragma once
// A small network for maps of a statistically homogeneous field: strided 3×3 convolutions, each with batch norm and
// ReLU, then the average over the map. It learns local features whose mean over the sky depends on the
// parameters sought: a learnt set of summary statistics (Fluri et al. 2018 and others use the same form on lensing
// maps). Any map size.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/init.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>
#include <vector>

namespace cairn {

struct map_cnn_config {
    index_t in_channels = 1, outputs = 1;
    std::vector<index_t> filters{16, 32, 64, 64};  // one strided convolution each
};

/// Input (N, H, W, in_channels), output (N, outputs).
template <class T = float, Device D = cpu>
sequential<T, D> map_cnn(const map_cnn_config& c) {
    sequential<T, D> net;
    index_t channels = c.in_channels;
    for (std::size_t i = 0; i < c.filters.size(); ++i) {
        const std::string number = std::to_string(i + 1);
        net.add("conv" + number, conv<T, D>({.in = channels,
                                             .out = c.filters[i],
                                             .kernel = 3,
                                             .stride = 2,
                                             .pad = 1,
                                             .bias = false,
                                             .init = init::kaiming_normal_fan_out}));
        net.add("norm" + number, batch_norm<T, D>({.channels = c.filters[i], .act = activation::relu}));
        channels = c.filters[i];
    }
    net.add("average", global_average_pool<T, D>());
    net.add("head", linear<T, D>({.in = channels, .out = c.outputs}));
    return net;
}

CAIRN_COMPILED_NETWORK(map_cnn(const map_cnn_config&))

}  // namespace cairn
