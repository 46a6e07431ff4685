#pragma once
// A plain convolutional network without normalisation, over one to three spatial axes: convolutions with ReLU, then
// linear layers.
//   conv k…, stride s → relu → max_pool …  → flatten → [dropout → hidden linear layer → relu …] → dropout → linear
// Of images (H, W, C) it is what ADMM can split (admm/split_chain.hpp), without pools and dropout. Of a profile (W),
// such as the activity of genes in their order, it has the shape of NT3 (CANDLE): few wide kernels, pools, two hidden
// layers. Of text (length, characters), with the pool over all places, it finds short patterns wherever they are.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/sequential.hpp>

#include <string>
#include <vector>

namespace cairn {

struct cnn_config {
    std::vector<index_t> filters{8};  // one convolution each
    index_t kernel = 5, stride = 2;   // along each axis
    index_t pool = 1;                 // window of the maximum behind each convolution; 1: none
    bool global_pool = false;         // the maximum over all places behind the last one
    std::vector<index_t> hidden{};    // widths of linear layers between
    double dropout = 0;               // before each linear layer
    index_t outputs = 10;
};

/// `in`: shape of one sample, (W), (W, C), (H, W, C) or (D, H, W, C). (N, …) → (N, outputs). Throws where the sample
/// is smaller than the kernel or a pool.
template <class T = float, Device D = cpu>
sequential<T, D> cnn(const shape& in, const cnn_config& c) {
    sequential<T, D> net;
    shape s{1};
    for (const index_t extent : in) s.push_back(extent);
    const auto add = [&](const std::string& name, auto layer) {
        s = layer.output_shape(s);
        net.add(name, std::move(layer));
    };
    if (in.rank() == 1) add("channel", unsqueeze<T, D>());
    const int dims = s.rank() - 2;
    for (std::size_t i = 0; i < c.filters.size(); ++i) {
        const std::string number = std::to_string(i + 1);
        add("conv" + number,
            conv<T, D>({.in = s.back(), .out = c.filters[i], .kernel = c.kernel, .stride = c.stride, .dims = dims}));
        add("relu" + number, relu<T, D>());
        if (c.pool > 1) add("pool" + number, max_pool<T, D>({.kernel = c.pool, .dims = dims}));
    }
    if (c.global_pool) {
        const per_axis all = dims == 1   ? per_axis({s[1]})
                             : dims == 2 ? per_axis({s[1], s[2]})
                                         : per_axis({s[1], s[2], s[3]});
        add("global_pool", max_pool<T, D>({.kernel = all, .dims = dims}));
    }
    add("flatten", flatten<T, D>());
    const auto add_linear = [&](const std::string& name, index_t width) {
        if (c.dropout > 0) add("dropout_" + name, dropout<T, D>(c.dropout));
        add(name, linear<T, D>({.in = s.back(), .out = width}));
    };
    for (std::size_t i = 0; i < c.hidden.size(); ++i) {
        add_linear(concat("fc", i + 1), c.hidden[i]);
        add(concat("relu_fc", i + 1), relu<T, D>());
    }
    add_linear("head", c.outputs);
    return net;
}

}  // namespace cairn
