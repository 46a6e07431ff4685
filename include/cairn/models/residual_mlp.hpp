#pragma once
// Network for tables: a linear path beside residual blocks of dense layers (those of Gorishniy et al. 2021).
//   y = linear(x) + head(block(… block(linear(x))))
//   block: h + dropout(linear(ReLU(linear(norm(h)))))       norm over the values of a row
//   head:  linear(ReLU(norm(h)))
// Far from the training rows the linear path goes on as a straight line where ReLUs alone bend away; the blocks learn
// what is left.

#include <cairn/nn/activation.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/sequential.hpp>

#include <vector>

namespace cairn {

struct residual_mlp_config {
    index_t inputs = 0, outputs = 0;
    index_t width = 128;  // of h
    int blocks = 2;
    double dropout = 0.1;  // 0: none
    bool linear_path = true;
};

/// (N, …) with `inputs` values a sample → (N, outputs).
template <class T = float, Device D = cpu>
sequential<T, D> residual_mlp(const residual_mlp_config& c) {
    const auto dense = [](index_t in, index_t out) { return linear<T, D>({.in = in, .out = out}); };
    sequential<T, D> deep;
    deep.add("stem", dense(c.inputs, c.width));
    for (int b = 1; b <= c.blocks; ++b) {
        sequential<T, D> block;
        block.add("norm", layer_norm<T, D>({.features = c.width}));
        block.add("fc1", dense(c.width, c.width));
        block.add("relu", relu<T, D>());
        block.add("fc2", dense(c.width, c.width));
        if (c.dropout > 0) block.add("dropout", dropout<T, D>(c.dropout));
        deep.add(concat("block", b), residual<T, D>(std::move(block)));
    }
    deep.add("norm", layer_norm<T, D>({.features = c.width}));
    deep.add("relu", relu<T, D>());
    if (c.dropout > 0) deep.add("dropout", dropout<T, D>(c.dropout));
    deep.add("head", dense(c.width, c.outputs));

    sequential<T, D> net;
    net.add("flatten", flatten<T, D>());
    if (!c.linear_path) {
        net.add("deep", std::move(deep));
        return net;
    }
    sequential<T, D> straight;
    straight.add("fc", dense(c.inputs, c.outputs));
    std::vector<sequential<T, D>> paths;
    paths.push_back(std::move(straight));
    paths.push_back(std::move(deep));
    net.add("paths", add_branches<T, D>(std::move(paths)));
    return net;
}

}  // namespace cairn
