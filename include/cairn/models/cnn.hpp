#pragma once
// A plain convolutional network without normalisation: strided convolutions with ReLU, then linear layers. Every
// layer is linear or a ReLU, so that ADMM can split it (admm/split_chain.hpp).
//   conv k×k, stride s → relu → …  → flatten → hidden linear layers with relu → linear

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>
#include <vector>

namespace cairn {

struct cnn_config {
    std::vector<index_t> filters{8};  // one convolution each
    index_t kernel = 5, stride = 2;
    std::vector<index_t> hidden{};  // widths of linear layers between
    index_t outputs = 10;
};

/// `in`: shape of one sample, (H, W, C). (N, H, W, C) → (N, outputs).
template <class T = float, Device D = cpu>
sequential<T, D> cnn(const shape& in, const cnn_config& c) {
    sequential<T, D> net;
    shape s{1};
    for (const index_t extent : in) s.push_back(extent);
    for (std::size_t i = 0; i < c.filters.size(); ++i) {
        const std::string number = std::to_string(i + 1);
        conv<T, D> layer({.in = s.back(), .out = c.filters[i], .kernel = c.kernel, .stride = c.stride});
        s = layer.output_shape(s);
        net.add("conv" + number, std::move(layer));
        net.add("relu" + number, relu<T, D>());
    }
    net.add("flatten", flatten<T, D>());
    index_t width = s.size();
    for (std::size_t i = 0; i < c.hidden.size(); ++i) {
        net.add(concat("fc", i + 1), linear<T, D>({.in = width, .out = c.hidden[i]}));
        net.add(concat("relu_fc", i + 1), relu<T, D>());
        width = c.hidden[i];
    }
    net.add("head", linear<T, D>({.in = width, .out = c.outputs}));
    return net;
}

}  // namespace cairn
