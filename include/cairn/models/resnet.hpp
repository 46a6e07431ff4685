#pragma once
// Residual networks (He et al., "Deep residual learning for image recognition", CVPR 2016), with the parameters of
// torchvision's.
//   basic block       relu(bn(conv3x3(relu(bn(conv3x3(x))))) + x')             ResNet-18, 34; 20, 32, 56 for CIFAR
//   bottleneck block  1x1 → 3x3 → 1x1, four times as wide at its end           ResNet-50; the 3x3 holds the stride
//   shortcut          x' = x, or bn(conv1x1(x)) where the shape changes (option B)
// Convolutions have no bias, the batch norm behind each has one; it also does the ReLU and the sum of the block.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/batch_norm.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>

namespace cairn {

/// Parameters of this family of networks.
struct resnet_config {
    enum class stem { cifar, imagenet } form = stem::cifar;  // 3x3 at full size, or 7x7 / 2 and max pooling / 2
    std::vector<index_t> widths{64, 128, 256, 512};          // of the stages; all but the first halve the image
    std::vector<int> blocks{2, 2, 2, 2};                     // in each stage
    bool bottleneck = false;
    index_t channels = 3, classes = 10;
    // last gamma of each block starts at 0: the block starts as its shortcut (Goyal et al. 2017)
    bool zero_init_residual = false;
    init_rule init = init::kaiming_normal_fan_out;
};

/// Makes the layers of a ResNet that have parameters, each whole. Other parts with the same members make the same
/// network of layers that several ranks share (parallel/tensor/channel_conv.hpp).
template <class T = float, Device D = cpu>
struct resnet_parts {
    any_layer<T, D> conv(const typename cairn::conv<T, D>::config& c) const { return cairn::conv<T, D>(c); }
    any_layer<T, D> norm(const typename batch_norm<T, D>::config& c) const { return batch_norm<T, D>(c); }
    any_layer<T, D> fc(const typename linear<T, D>::config& c) const { return linear<T, D>(c); }
};

namespace detail {

template <class T, Device D, class Parts>
class resnet_builder {
public:
    resnet_builder(resnet_config c, const Parts& parts) : config_(std::move(c)), parts_(parts) {}

    sequential<T, D> build() {
        const resnet_config& c = config_;
        require(!c.blocks.empty() && c.blocks.size() == c.widths.size(), "resnet: ", c.widths.size(), " widths for ",
                c.blocks.size(), " stages");
        index_t width = c.widths[0];
        if (c.form == resnet_config::stem::cifar) {
            conv_bn(net_, "1", c.channels, width, 3, 1, activation::relu);
        } else {
            conv_bn(net_, "1", c.channels, width, 7, 2, activation::relu);
            net_.add("maxpool", max_pool<T, D>({.kernel = 3, .stride = 2, .pad = 1}));
        }
        for (std::size_t stage = 0; stage < c.blocks.size(); ++stage)
            for (int b = 0; b < c.blocks[stage]; ++b) {
                const index_t stride = stage > 0 && b == 0 ? 2 : 1, inner = c.widths[stage],
                              out = c.bottleneck ? 4 * inner : inner;
                net_.add(concat("layer", stage + 1, '/', b), block(width, inner, out, stride));
                width = out;
            }
        net_.add("avgpool", global_average_pool<T, D>());
        net_.add("fc", parts_.fc({.in = width, .out = c.classes}));
        return std::move(net_);
    }

private:
    residual<T, D> block(index_t in, index_t inner, index_t out, index_t stride) const {
        sequential<T, D> body, shortcut;
        const double last_scale = config_.zero_init_residual ? 0 : 1;
        if (config_.bottleneck) {
            conv_bn(body, "1", in, inner, 1, 1, activation::relu);
            conv_bn(body, "2", inner, inner, 3, stride, activation::relu);
            conv_bn(body, "3", inner, out, 1, 1, activation::relu, last_scale);
        } else {
            conv_bn(body, "1", in, inner, 3, stride, activation::relu);
            conv_bn(body, "2", inner, out, 3, 1, activation::relu, last_scale);
        }
        if (stride != 1 || in != out) conv_bn(shortcut, "", in, out, 1, stride, activation::none);
        return residual<T, D>(std::move(body), std::move(shortcut));
    }

    void conv_bn(sequential<T, D>& chain, const char* number, index_t in, index_t out, index_t kernel, index_t stride,
                 activation act, double scale = 1) const {
        chain.add(concat("conv", number), parts_.conv({.in = in,
                                                       .out = out,
                                                       .kernel = kernel,
                                                       .stride = stride,
                                                       .pad = kernel / 2,
                                                       .bias = false,
                                                       .init = config_.init}));
        chain.add(concat("bn", number), parts_.norm({.channels = out, .act = act, .initial_scale = scale}));
    }

    resnet_config config_;
    const Parts& parts_;
    sequential<T, D> net_;
};

}  // namespace detail

/// Any network of the family, its layers made by `parts`. (N, H, W, channels) → (N, classes).
template <class T, Device D, class Parts>
sequential<T, D> resnet(resnet_config config, const Parts& parts) {
    return detail::resnet_builder<T, D, Parts>(std::move(config), parts).build();
}

/// The same of whole layers.
template <class T = float, Device D = cpu>
sequential<T, D> resnet(resnet_config config) {
    return resnet<T, D>(std::move(config), resnet_parts<T, D>{});
}

/// ResNet-20, 32, 44, 56, 110 of the paper's section on CIFAR: depth 6n + 2, widths 16, 32, 64. Throws on another
/// depth.
inline resnet_config resnet_cifar_config(int depth, index_t classes = 10) {
    require(depth >= 8 && depth % 6 == 2, "resnet_cifar: depth ", depth,
            "; 6n + 2 is needed, 20, 32 or 56 for example");
    const int n = (depth - 2) / 6;
    resnet_config c;
    c.widths = {16, 32, 64};
    c.blocks = {n, n, n};
    c.classes = classes;
    return c;
}

/// ResNet-18, 34 and 50. Throws on another depth.
inline resnet_config resnet_config_of(int depth, resnet_config::stem form = resnet_config::stem::imagenet,
                                      index_t classes = 1000) {
    require(depth == 18 || depth == 34 || depth == 50, "resnet: depth ", depth, "; 18, 34 and 50 are known");
    resnet_config c;
    c.form = form;
    c.classes = classes;
    if (depth != 18) c.blocks = {3, 4, 6, 3};
    c.bottleneck = depth == 50;
    return c;
}

/// ResNet-20, 32, 56 …: (N, 32, 32, 3) → (N, classes).
template <class T = float, Device D = cpu>
sequential<T, D> resnet_cifar(int depth, index_t classes = 10) {
    return resnet<T, D>(resnet_cifar_config(depth, classes));
}

/// ResNet-18, 34, 50: (N, 224, 224, 3) → (N, classes), or (N, 32, 32, 3) in the CIFAR form.
template <class T = float, Device D = cpu>
sequential<T, D> resnet(int depth, resnet_config::stem form = resnet_config::stem::imagenet, index_t classes = 1000) {
    return resnet<T, D>(resnet_config_of(depth, form, classes));
}

CAIRN_COMPILED_NETWORK(resnet(resnet_config))
CAIRN_COMPILED_NETWORK(resnet_cifar(int, index_t))
CAIRN_COMPILED_NETWORK(resnet(int, resnet_config::stem, index_t))

}  // namespace cairn
