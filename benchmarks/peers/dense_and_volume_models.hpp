// LeNet-5, the deep autoencoder and CosmoFlow in libtorch, layer for layer what Cairn builds.
#pragma once

#include <torch/torch.h>

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace peer {

/// LeNet-5 (LeCun et al. 1998) with ReLU and max pooling. 1x28x28 -> 10; 61,706 parameters.
inline torch::nn::Sequential lenet() {
    const auto relu = [] { return torch::nn::ReLU(torch::nn::ReLUOptions(true)); };
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 6, 5).padding(2)), relu(),
                                 torch::nn::MaxPool2d(2),                        // (6, 14, 14)
                                 torch::nn::Conv2d(6, 16, 5), relu(),            // (16, 10, 10)
                                 torch::nn::MaxPool2d(2), torch::nn::Flatten(),  // 400
                                 torch::nn::Linear(400, 120), relu(), torch::nn::Linear(120, 84), relu(),
                                 torch::nn::Linear(84, 10));
}

/// Deep autoencoder (Hinton and Salakhutdinov 2006): 784-1000-500-250-30 and back. The code layer is linear; the
/// output is logits (the sigmoid is part of the loss).
inline torch::nn::Sequential autoencoder() {
    constexpr std::array<int64_t, 9> widths{784, 1000, 500, 250, 30, 250, 500, 1000, 784};
    torch::nn::Sequential seq;
    for (std::size_t i = 0; i + 1 < widths.size(); ++i) {
        seq->push_back(torch::nn::Linear(widths[i], widths[i + 1]));
        const bool code = widths[i + 1] == 30, output = i + 2 == widths.size();
        if (!code && !output) {
            seq->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
        }
    }
    return seq;
}

/// CosmoFlow (Mathuriya et al. 2018, in the MLPerf HPC form). 4 x size^3 -> 3 cosmological parameters; five blocks of
/// conv3x3x3 + bias -> leaky ReLU 0.3 -> max pooling 2. Throws if size is no multiple of 32 (five halvings).
inline torch::nn::Sequential cosmoflow(int64_t size) {
    if (size < 32 || size % 32 != 0) {
        throw std::invalid_argument("cosmoflow: --size " + std::to_string(size) +
                                    ": the side of the volume must be a multiple of 32 (five poolings by 2)");
    }
    const auto leaky = [] {
        return torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.3).inplace(true));
    };
    torch::nn::Sequential seq;
    int64_t in = 4;
    for (const int64_t filters : {16, 32, 64, 128, 256}) {
        seq->push_back(torch::nn::Conv3d(torch::nn::Conv3dOptions(in, filters, 3).padding(1)));
        seq->push_back(leaky());
        seq->push_back(torch::nn::MaxPool3d(2));
        in = filters;
    }
    const int64_t side = size / 32;
    seq->push_back(torch::nn::Flatten());
    seq->push_back(torch::nn::Linear(in * side * side * side, 128));
    seq->push_back(leaky());
    seq->push_back(torch::nn::Dropout(0.5));
    seq->push_back(torch::nn::Linear(128, 64));
    seq->push_back(leaky());
    seq->push_back(torch::nn::Dropout(0.5));
    seq->push_back(torch::nn::Linear(64, 3));
    return seq;
}

}  // namespace peer
