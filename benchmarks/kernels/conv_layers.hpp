#pragma once
// The convolutions of the networks that Cairn is measured with, each shape once, with how often the network has it.

#include <cairn/device/conv_geometry.hpp>

#include <string>
#include <vector>

namespace kernels {

struct conv_layer {
    std::string network, name;
    cairn::conv_geometry g;
    int times;           // in one pass through the network
    bool first = false;  // reads the data: has no input gradient
};

inline std::vector<conv_layer> conv_layers() {
    using cairn::index_t;
    std::vector<conv_layer> layers;
    const auto add = [&](const char* network, int spatial, index_t n, index_t size, index_t c_in, index_t c_out,
                         index_t kernel, index_t stride, index_t pad, int times, bool first = false) {
        cairn::conv_geometry g;
        g.n = n, g.c_in = c_in, g.c_out = c_out;
        for (std::size_t axis = static_cast<std::size_t>(3 - spatial); axis < 3; ++axis) {
            g.in[axis] = size, g.kernel[axis] = kernel, g.stride[axis] = stride, g.pad[axis] = pad;
        }
        const std::string k = std::to_string(kernel);
        layers.push_back({network,
                          k + 'x' + k + (spatial == 3 ? 'x' + k : "") +
                              (stride > 1 ? "s" + std::to_string(stride) : "") + '_' + std::to_string(c_in) + '_' +
                              std::to_string(c_out) + '_' + std::to_string(size),
                          g.with_output(), times, first});
    };
    add("resnet18_cifar", 2, 128, 32, 3, 64, 3, 1, 1, 1, true);
    add("resnet18_cifar", 2, 128, 32, 64, 64, 3, 1, 1, 4);
    add("resnet18_cifar", 2, 128, 32, 64, 128, 3, 2, 1, 1);
    add("resnet18_cifar", 2, 128, 32, 64, 128, 1, 2, 0, 1);
    add("resnet18_cifar", 2, 128, 16, 128, 128, 3, 1, 1, 3);
    add("resnet18_cifar", 2, 128, 16, 128, 256, 3, 2, 1, 1);
    add("resnet18_cifar", 2, 128, 16, 128, 256, 1, 2, 0, 1);
    add("resnet18_cifar", 2, 128, 8, 256, 256, 3, 1, 1, 3);
    add("resnet18_cifar", 2, 128, 8, 256, 512, 3, 2, 1, 1);
    add("resnet18_cifar", 2, 128, 8, 256, 512, 1, 2, 0, 1);
    add("resnet18_cifar", 2, 128, 4, 512, 512, 3, 1, 1, 3);

    add("resnet50_224", 2, 16, 224, 3, 64, 7, 2, 3, 1, true);
    const index_t widths[] = {64, 128, 256, 512};
    const int blocks[] = {3, 4, 6, 3};
    index_t in = 64, size = 56;
    for (int stage = 0; stage < 4; ++stage) {
        const index_t c = widths[stage], stride = stage == 0 ? 1 : 2, small = size / stride;
        add("resnet50_224", 2, 16, size, in, c, 1, 1, 0, 1);
        add("resnet50_224", 2, 16, size, c, c, 3, stride, 1, stage == 0 ? blocks[0] : 1);
        add("resnet50_224", 2, 16, size, in, 4 * c, 1, stride, 0, 1);
        add("resnet50_224", 2, 16, small, c, 4 * c, 1, 1, 0, blocks[stage]);
        add("resnet50_224", 2, 16, small, 4 * c, c, 1, 1, 0, blocks[stage] - 1);
        if (stage > 0) add("resnet50_224", 2, 16, small, c, c, 3, 1, 1, blocks[stage] - 1);
        in = 4 * c, size = small;
    }
    index_t volume = 64, channels = 4;
    for (index_t c : {16, 32, 64, 128, 256}) {
        add("cosmoflow_64", 3, 4, volume, channels, c, 3, 1, 1, 1, channels == 4);
        channels = c, volume /= 2;
    }
    add("lenet", 2, 128, 28, 1, 6, 5, 1, 2, 1, true);
    add("lenet", 2, 128, 14, 6, 16, 5, 1, 0, 1);
    return layers;
}

}  // namespace kernels
