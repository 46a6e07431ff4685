#pragma once
// The networks that kfac_parts and kfac_traffic measure K-FAC on, with random input.

#include <cairn/models/autoencoder.hpp>
#include <cairn/models/resnet.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace cairn {

inline const std::vector<std::string> kfac_models{"resnet18", "resnet50", "resnet20", "resnet32", "autoencoder"};

inline sequential<float> kfac_model(const std::string& name) {
    if (name == "resnet18" || name == "resnet50")
        return resnet(name == "resnet18" ? 18 : 50, resnet_config::stem::cifar, 10);
    if (name == "resnet20" || name == "resnet32") return resnet_cifar(name == "resnet20" ? 20 : 32);
    return autoencoder({784, 1000, 500, 250, 30});
}

/// Samples of this rank.
inline tensor<float> kfac_input(const std::string& name, index_t samples, int rank) {
    tensor<float> x(name == "autoencoder" ? shape{samples, 784} : shape{samples, 32, 32, 3}, memory_category::data);
    fill(x.span(), {initializer::distribution::normal, 1, 0}, random_stream{1, static_cast<std::uint32_t>(rank), 3});
    return x;
}

}  // namespace cairn
