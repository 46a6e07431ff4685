// The table of networks that Cairn is compared on: shape of a sample, loss, default batch, how to build it.
#pragma once

#include "dense_and_volume_models.hpp"
#include "resnet.hpp"

#include <torch/torch.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace peer {

enum class loss_kind { cross_entropy, mean_squared, binary_cross_entropy };

struct workload {
    std::string name;
    std::vector<int64_t> sample;  // shape of one input without the batch, channels first (libtorch's logical order)
    int64_t outputs;
    loss_kind loss;
    int64_t batch;
    std::function<torch::nn::Sequential()> build;
};

/// All workloads. `size` is the side of CosmoFlow's volume.
inline std::vector<workload> workloads(int64_t size) {
    const auto cross_entropy = loss_kind::cross_entropy;
    const auto mean_squared = loss_kind::mean_squared;
    const auto binary_cross_entropy = loss_kind::binary_cross_entropy;
    const auto small_resnet = [](int n) { return [n] { return cifar_resnet<3>({16, 32, 64}, n, 10); }; };
    return {
        {"resnet18-cifar",
         {3, 32, 32},
         10,
         cross_entropy,
         128,
         [] {
             return cifar_resnet<4>({64, 128, 256, 512}, 2, 10);
         }},
        {"resnet20-cifar", {3, 32, 32}, 10, cross_entropy, 128, small_resnet(3)},
        {"resnet32-cifar", {3, 32, 32}, 10, cross_entropy, 128, small_resnet(5)},
        {"resnet56-cifar", {3, 32, 32}, 10, cross_entropy, 128, small_resnet(9)},
        {"resnet50-imagenet", {3, 224, 224}, 1000, cross_entropy, 16, [] { return resnet50(1000); }},
        {"cosmoflow", {4, size, size, size}, 3, mean_squared, 4, [size] { return cosmoflow(size); }},
        {"lenet", {1, 28, 28}, 10, cross_entropy, 128, [] { return lenet(); }},
        {"autoencoder", {784}, 784, binary_cross_entropy, 256, [] { return autoencoder(); }},
    };
}

inline workload find_workload(const std::string& name, int64_t size) {
    std::string known;
    for (auto& w : workloads(size)) {
        if (w.name == name) {
            return w;
        }
        known += " " + w.name;
    }
    throw std::invalid_argument("--model '" + name + "' is unknown; known are:" + known);
}

inline torch::Tensor loss_of(loss_kind kind, const torch::Tensor& output, const torch::Tensor& target) {
    switch (kind) {
        case loss_kind::cross_entropy:
            return torch::nn::functional::cross_entropy(output, target);
        case loss_kind::mean_squared:
            return torch::mse_loss(output, target);
        case loss_kind::binary_cross_entropy:
            return torch::binary_cross_entropy_with_logits(output, target);
    }
    throw std::logic_error("loss_of: unknown loss");
}

/// Convolutions: Kaiming normal, fan_out, gain sqrt(2): std = sqrt(2 / (out_channels k^d)). Batch norm starts at 1 and
/// 0, linear layers (and the biases of convolutions) at libtorch's uniform(-1/sqrt(fan_in), 1/sqrt(fan_in)).
inline void initialise(torch::nn::Module& net) {
    const torch::NoGradGuard no_grad;
    for (auto& p : net.parameters()) {
        if (p.dim() >= 4) {
            torch::nn::init::kaiming_normal_(p, 0, torch::kFanOut, torch::kReLU);
        }
    }
}

/// Which memory format the layout `name` means for a tensor of `dim` dimensions.
inline at::MemoryFormat memory_format(bool channels_last, int64_t dim) {
    if (channels_last && dim == 4) {
        return at::MemoryFormat::ChannelsLast;
    }
    if (channels_last && dim == 5) {
        return at::MemoryFormat::ChannelsLast3d;
    }
    return at::MemoryFormat::Contiguous;
}

inline void set_layout(torch::nn::Module& net, bool channels_last) {
    const torch::NoGradGuard no_grad;
    for (auto& p : net.parameters()) {
        p.set_data(p.contiguous(memory_format(channels_last, p.dim())));
    }
}

}  // namespace peer
