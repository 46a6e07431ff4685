// Residual networks (He et al. 2016, https://arxiv.org/abs/1512.03385) in libtorch, layer for layer what Cairn builds.
//
//   basic block       y = relu(x' + bn(conv3x3(relu(bn(conv3x3(x))))))            ResNet-18, CIFAR ResNet-20/32/56
//   bottleneck block  1x1 -> 3x3 (holds the stride, as torchvision does) -> 1x1    ResNet-50
//   shortcut          x' = x, or bn(conv1x1(x)) where the shape changes (option B)
//
// ReLU and the residual addition work in place, as torchvision's nets do: their outputs are all that backward needs.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>

namespace peer {

inline torch::nn::Conv2d conv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

/// 1x1 convolution and batch norm where the shape changes; empty (the identity) elsewhere.
inline torch::nn::Sequential projection(int64_t in, int64_t out, int64_t stride) {
    torch::nn::Sequential seq;
    if (in != out || stride != 1) {
        seq->push_back(conv(in, out, 1, stride));
        seq->push_back(torch::nn::BatchNorm2d(out));
    }
    return seq;
}

inline torch::Tensor apply_shortcut(torch::nn::Sequential& shortcut, const torch::Tensor& x) {
    return shortcut->is_empty() ? x : shortcut->forward(x);
}

struct basic_block_impl : torch::nn::Module {
    basic_block_impl(int64_t in, int64_t out, int64_t stride)
        : conv1(register_module("conv1", conv(in, out, 3, stride))),
          conv2(register_module("conv2", conv(out, out, 3, 1))),
          bn1(register_module("bn1", torch::nn::BatchNorm2d(out))),
          bn2(register_module("bn2", torch::nn::BatchNorm2d(out))),
          shortcut(register_module("shortcut", projection(in, out, stride))) {}

    torch::Tensor forward(const torch::Tensor& x) {
        auto y = bn1(conv1(x)).relu_();
        y = bn2(conv2(y));
        return y.add_(apply_shortcut(shortcut, x)).relu_();
    }

    torch::nn::Conv2d conv1, conv2;
    torch::nn::BatchNorm2d bn1, bn2;
    torch::nn::Sequential shortcut;
};

struct bottleneck_impl : torch::nn::Module {
    static constexpr int64_t expansion = 4;

    bottleneck_impl(int64_t in, int64_t width, int64_t stride)
        : conv1(register_module("conv1", conv(in, width, 1, 1))),
          conv2(register_module("conv2", conv(width, width, 3, stride))),
          conv3(register_module("conv3", conv(width, width * expansion, 1, 1))),
          bn1(register_module("bn1", torch::nn::BatchNorm2d(width))),
          bn2(register_module("bn2", torch::nn::BatchNorm2d(width))),
          bn3(register_module("bn3", torch::nn::BatchNorm2d(width * expansion))),
          shortcut(register_module("shortcut", projection(in, width * expansion, stride))) {}

    torch::Tensor forward(const torch::Tensor& x) {
        auto y = bn1(conv1(x)).relu_();
        y = bn2(conv2(y)).relu_();
        y = bn3(conv3(y));
        return y.add_(apply_shortcut(shortcut, x)).relu_();
    }

    torch::nn::Conv2d conv1, conv2, conv3;
    torch::nn::BatchNorm2d bn1, bn2, bn3;
    torch::nn::Sequential shortcut;
};

TORCH_MODULE_IMPL(basic_block, basic_block_impl);
TORCH_MODULE_IMPL(bottleneck, bottleneck_impl);

inline void push_relu(torch::nn::Sequential& seq) { seq->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true))); }

inline void push_head(torch::nn::Sequential& seq, int64_t features, int64_t classes) {
    seq->push_back(torch::nn::AdaptiveAvgPool2d(torch::nn::AdaptiveAvgPool2dOptions({1, 1})));
    seq->push_back(torch::nn::Flatten());
    seq->push_back(torch::nn::Linear(features, classes));
}

/// 3x32x32 -> classes. Stem 3x3 at full resolution, then stages of `blocks` basic blocks; every stage but the first
/// halves the resolution. widths {64, 128, 256, 512}, blocks 2: ResNet-18. widths {16, 32, 64}, blocks n:
/// ResNet-(6n+2).
template <std::size_t Stages>
torch::nn::Sequential cifar_resnet(const std::array<int64_t, Stages>& widths, int blocks, int64_t classes) {
    torch::nn::Sequential seq;
    seq->push_back(conv(3, widths[0], 3, 1));
    seq->push_back(torch::nn::BatchNorm2d(widths[0]));
    push_relu(seq);
    int64_t in = widths[0];
    for (std::size_t stage = 0; stage < Stages; ++stage) {
        for (int b = 0; b < blocks; ++b) {
            seq->push_back(basic_block(in, widths[stage], stage > 0 && b == 0 ? 2 : 1));
            in = widths[stage];
        }
    }
    push_head(seq, in, classes);
    return seq;
}

/// 3x224x224 -> classes: ResNet-50 as in torchvision (25,557,032 parameters with 1,000 classes).
inline torch::nn::Sequential resnet50(int64_t classes) {
    torch::nn::Sequential seq;
    seq->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 64, 7).stride(2).padding(3).bias(false)));
    seq->push_back(torch::nn::BatchNorm2d(64));
    push_relu(seq);
    seq->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    const std::array<int, 4> blocks{3, 4, 6, 3};
    int64_t in = 64;
    for (std::size_t stage = 0; stage < blocks.size(); ++stage) {
        const int64_t width = int64_t{64} << stage;
        for (int b = 0; b < blocks[stage]; ++b) {
            seq->push_back(bottleneck(in, width, stage > 0 && b == 0 ? 2 : 1));
            in = width * bottleneck_impl::expansion;
        }
    }
    push_head(seq, in, classes);
    return seq;
}

}  // namespace peer
