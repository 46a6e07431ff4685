#pragma once
// Layers, losses and optimizers on a grid device: the same training as on the host, from the same seed. Included after the device's products and
// convolutions.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/models/resnet.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/dropout.hpp>
#include <cairn/nn/embedding.hpp>
#include <cairn/nn/flatten.hpp>
#include <cairn/nn/layer_norm.hpp>
#include <cairn/nn/linear.hpp>
#include <cairn/nn/loss/binary_cross_entropy.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/nn/loss/huber.hpp>
#include <cairn/nn/loss/mean_squared.hpp>
#include <cairn/nn/pool.hpp>
#include <cairn/nn/residual.hpp>
#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/sgd.hpp>

namespace cairn::training_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;

/// One of each layer that images go through, in eight by eight points.
template <class T, class D>
sequential<T, D> small_network(index classes) {
    sequential<T, D> body;
    body.add("conv", conv<T, D>({.in = 8, .out = 8, .kernel = 3, .pad = 1, .bias = false}));
    body.add("norm", batch_norm<T, D>({.channels = 8, .act = activation::relu}));
    sequential<T, D> all;
    all.add("stem", conv<T, D>({.in = 3, .out = 8, .kernel = 3, .pad = 1}));
    all.add("stem_norm", batch_norm<T, D>({.channels = 8, .act = activation::leaky_relu}));
    all.add("block", residual<T, D>(std::move(body)));
    all.add("relu", activation_layer<T, D>(activation::relu));
    all.add("max", max_pool<T, D>({.kernel = 2}));
    all.add("gelu", activation_layer<T, D>(activation::gelu));
    all.add("average", average_pool<T, D>({.kernel = 2}));
    all.add("flatten", flatten<T, D>());
    all.add("drop", dropout<T, D>(0.2));
    all.add("layer_norm", layer_norm<T, D>({.features = 32}));
    all.add("out", linear<T, D>({.in = 32, .out = classes}));
    return all;
}

/// Losses of three steps, and the parameters and buffers after them, on the host.
template <class T>
struct history {
    std::vector<double> losses;
    std::vector<tensor<T>> state;
};

template <class D, class T, class O>
history<T> train(const O& optimizer, double lr) {
    constexpr index batch = 4, classes = 5;
    auto model = small_network<T, D>(classes);
    arena<T, D> weights(model.params(), 3);
    optimizer_over<O, T, D> step(optimizer, weights);
    tensor<std::int32_t> labels({batch});
    for (index i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i * 2 % classes);
    const auto d_labels = tensor<std::int32_t, D>::copy_of(labels);
    history<T> h;
    for (std::uint32_t s = 0; s < 3; ++s) {
        tape<T, D> tape;
        const pass p{.mode = mode::train, .seed = 5, .step = s, .input_gradient = false};
        auto y = model.forward(tensor<T, D>::copy_of(drawn<T>({batch, 8, 8, 3}, 40 + s)), tape, p);
        auto [loss, dy] =
            cross_entropy{.label_smoothing = 0.1, .class_weights = {1, 2, 1, 0.5, 1}}(std::move(y), d_labels);
        h.losses.push_back(loss);
        weights.zero_grad();
        model.backward(std::move(dy), tape, p);
        step.step(lr);
    }
    tape<T, D> none;
    h.state.push_back(
        model.forward(tensor<T, D>::copy_of(drawn<T>({2, 8, 8, 3}, 50)), none, {.mode = mode::evaluate}).on_host());
    for (const auto& [name, p] : weights.parameters()) h.state.push_back(p->value.on_host());
    for (const auto& [name, t] : model.buffers()) h.state.push_back(t->on_host());
    return h;
}

/// The host's training to rounding, and the device's own again to the bit.
template <class D, class T, class O>
void same_training(const O& optimizer, double lr) {
    const double tolerance = std::is_same_v<T, double> ? 1e-8 : 2e-3;
    const history<T> host = train<cpu, T>(optimizer, lr), device = train<D, T>(optimizer, lr),
                     again = train<D, T>(optimizer, lr);
    for (std::size_t s = 0; s < host.losses.size(); ++s) CHECK(std::abs(host.losses[s] - device.losses[s]) < tolerance);
    CHECK(again.losses == device.losses);
    REQUIRE(host.state.size() == device.state.size());
    for (std::size_t i = 0; i < host.state.size(); ++i) {
        check_close(device.state[i], host.state[i], tolerance);
        check_close(again.state[i], device.state[i], 0);
    }
}

template <class D, class T>
void sgd_trains() {
    same_training<D, T>(sgd{{.momentum = 0.9, .weight_decay = 1e-3, .nesterov = true}}, 0.05);
}
template <class D, class T>
void clipped_adam_trains() {
    same_training<D, T>(clipped<adamw>{adamw{{.weight_decay = 0.01}}, by_norm{0.5}}, 1e-3);
}
template <class D, class T>
void lars_trains() {
    same_training<D, T>(clipped<lars, by_value>{lars{{.trust = 0.01}}, by_value{0.1}}, 0.1);
}
template <class D, class T>
void lamb_trains() {
    same_training<D, T>(lamb{{.weight_decay = 0.01}}, 1e-3);
}

/// Value and gradient as on the host, for predictions (5, 7).
template <class D, class T, class L>
void same_loss(const L& loss) {
    const double tolerance = std::is_same_v<T, double> ? 1e-12 : 1e-5;
    const auto x = drawn<T>({5, 7}, 60);
    auto t = drawn<T>({5, 7}, 61);
    for (T& v : t.span()) v = 1 / (1 + std::exp(-v));  // in (0, 1)
    const auto host = loss(x.clone(), t);
    const auto device = loss(tensor<T, D>::copy_of(x), tensor<T, D>::copy_of(t));
    CHECK(std::abs(device.value - host.value) < tolerance);
    check_close(device.gradient.on_host(), host.gradient, tolerance);
}

template <class D, class T>
void losses_of_elements() {
    const element_weights weights{.outputs = {1, 2, 0, 1, 0.5, 1, 3}, .samples = {1, 0, 2, 1, 0.25}};
    same_loss<D, T>(mean_squared{});
    same_loss<D, T>(mean_squared{.weights = weights});
    same_loss<D, T>(huber{.delta = 0.4});
    same_loss<D, T>(huber{.delta = 0.4, .weights = weights});
    same_loss<D, T>(binary_cross_entropy{});
    // A target that is no probability: the host throws, here the value is not a number.
    auto t = tensor<T>::filled({5, 7}, T(0.5));
    t[20] = T(1.5);
    CHECK(std::isnan(
        binary_cross_entropy{}(tensor<T, D>::copy_of(drawn<T>({5, 7}, 60)), tensor<T, D>::copy_of(t)).value));
}

/// A gradient that is not finite is named, and nothing is updated.
template <class D>
void broken_gradient() {
    linear<float, D> layer({.in = 2, .out = 2});
    arena<float, D> weights(layer.params(), 1);
    optimizer_over<sgd, float, D> step(sgd{}, weights);
    tensor<float> g({2});
    g[0] = 1, g[1] = std::numeric_limits<float>::quiet_NaN();
    D::copy_to_device(weights.parameters()[1].p->grad.data(), g.data(), g.bytes());
    CHECK_THROWS_WITH(step.step(0.1), Catch::Contains("gradient of bias") && Catch::Contains("element 1 is nan"));
}

/// T: what the device has convolutions for.
template <GridDevice D, class T>
const std::vector<kernel_laws::law>& all() {
    static const std::vector<kernel_laws::law> laws{{"sgd", sgd_trains<D, T>},
                                                    {"clipped adamw", clipped_adam_trains<D, T>},
                                                    {"lars, clipped by value", lars_trains<D, T>},
                                                    {"lamb", lamb_trains<D, T>},
                                                    {"losses of elements", losses_of_elements<D, T>},
                                                    {"a gradient that is not finite", broken_gradient<D>}};
    return laws;
}

}  // namespace cairn::training_laws
