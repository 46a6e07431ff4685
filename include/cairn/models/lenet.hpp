#pragma once
// LeNet-5 (LeCun et al. 1998) as it is built today, with ReLU and max pooling: 61,706 parameters.
//   conv 5x5, 6 → pool → conv 5x5, 16 → pool → 120 → 84 → 10
// ReLU comes after the pooling: the maximum of a monotone function is the function of the maximum, on a quarter of
// the values.

#include <cairn/core/compiled.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/conv.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/sequential.hpp>

namespace cairn {

/// (N, 28, 28, 1) → (N, classes).
template <class T = float, Device D = cpu>
sequential<T, D> lenet(index_t classes = 10) {
    sequential<T, D> net;
    net.add("conv1", conv<T, D>({.in = 1, .out = 6, .kernel = 5, .pad = 2}));  // (N, 28, 28, 6)
    net.add("pool1", max_pool<T, D>({.kernel = 2}));                           // (N, 14, 14, 6)
    net.add("relu1", relu<T, D>());
    net.add("conv2", conv<T, D>({.in = 6, .out = 16, .kernel = 5}));  // (N, 10, 10, 16)
    net.add("pool2", max_pool<T, D>({.kernel = 2}));                  // (N, 5, 5, 16)
    net.add("relu2", relu<T, D>());
    net.add("flatten", flatten<T, D>());
    net.add("fc1", linear<T, D>({.in = 400, .out = 120}));
    net.add("relu3", relu<T, D>());
    net.add("fc2", linear<T, D>({.in = 120, .out = 84}));
    net.add("relu4", relu<T, D>());
    net.add("fc3", linear<T, D>({.in = 84, .out = classes}));
    return net;
}

CAIRN_COMPILED_NETWORK(lenet(index_t))

}  // namespace cairn
