#pragma once
// Layers, losses and optimizers on a grid device: the same training as on the host, from the same seed. Included after
// the device's products and convolutions.

#include "device/cuda/kernel_laws.hpp"

#include <cairn/device/grid/curvature.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/nn/activation.hpp>
#include <cairn/nn/branches.hpp>
#include <cairn/nn/cast.hpp>
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
#include <cairn/optim/adam.hpp>
#include <cairn/optim/clip.hpp>
#include <cairn/optim/lamb.hpp>
#include <cairn/optim/lars.hpp>
#include <cairn/optim/precondition/kfac.hpp>
#include <cairn/optim/sgd.hpp>

namespace cairn::training_laws {

using kernel_laws::check_close;
using kernel_laws::drawn;

/// One of each layer that images go through, in eight by eight points.
struct of_images {
    static shape in(index_t batch) { return {batch, 8, 8, 3}; }
    template <class T, class D>
    static sequential<T, D> network(index_t classes);
};
template <class T, class D>
sequential<T, D> of_images::network(index_t classes) {
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

/// Layers of rows, three a sample.
struct of_rows {
    static shape in(index_t batch) { return {batch, 3, 10}; }
    template <class T, class D>
    static sequential<T, D> network(index_t classes) {
        sequential<T, D> all;
        all.add("each", linear<T, D>({.in = 10, .out = 12}));
        all.add("norm", batch_norm<T, D>({.channels = 12, .act = activation::leaky_relu}));
        all.add("again", linear<T, D>({.in = 12, .out = 8, .bias = false}));
        all.add("gelu", activation_layer<T, D>(activation::gelu));
        all.add("layer_norm", layer_norm<T, D>({.features = 8}));
        all.add("flatten", flatten<T, D>());
        all.add("drop", dropout<T, D>(0.2));
        all.add("out", linear<T, D>({.in = 24, .out = classes}));
        return all;
    }
};

/// Losses of three steps, and the parameters and buffers after them, on the host.
template <class T>
struct history {
    std::vector<double> losses;
    std::vector<tensor<T>> state;
};

/// C: what layers compute in; weights are of T. N: of_images or of_rows.
template <class D, class T, class C = T, class N = of_images, class O>
history<T> train(const O& optimizer, double lr) {
    constexpr index_t batch = 4, classes = 5;
    auto model = N::template network<C, D>(classes);
    arena<T, D> weights(model.parameters(), 3);
    bound_optimizer<O, T, D> step(optimizer, weights);
    tensor<std::int32_t> labels({batch});
    for (index_t i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i * 2 % classes);
    const auto d_labels = tensor<std::int32_t, D>::copy_of(labels);
    history<T> h;
    for (std::uint32_t s = 0; s < 3; ++s) {
        saved_tensors<C, D> saved;
        const pass_context p{.mode = mode::train, .random = {.seed = 5, .step = s}, .input_gradient = false};
        const auto x = tensor<T, D>::copy_of(drawn<T>(N::in(batch), 40 + s));
        auto y = cast<T>(model.forward(cast<C>(x), saved, p));
        auto [loss, dy] =
            cross_entropy{.label_smoothing = 0.1, .class_weights = {1, 2, 1, 0.5, 1}}(std::move(y), d_labels);
        h.losses.push_back(loss);
        weights.zero_grad();
        model.backward(cast<C>(std::move(dy)), saved, p);
        step.step(lr);
    }
    saved_tensors<C, D> none;
    const auto x = tensor<T, D>::copy_of(drawn<T>(N::in(2), 50));
    h.state.push_back(cast<T>(model.forward(cast<C>(x), none, {.mode = mode::evaluate})).on_host());
    for (const auto& [name, p] : weights.parameters()) h.state.push_back(p->value.on_host());
    for (const auto& [name, t] : model.buffers()) h.state.push_back(t->on_host());
    return h;
}

/// The host's training to rounding, and the device's own again to the bit.
template <class D, class T, class N = of_images, class O>
void same_training(const O& optimizer, double lr) {
    const double tolerance = std::is_same_v<T, double> ? 1e-8 : 2e-3;
    const history<T> host = train<cpu, T, T, N>(optimizer, lr), device = train<D, T, T, N>(optimizer, lr),
                     again = train<D, T, T, N>(optimizer, lr);
    for (std::size_t s = 0; s < host.losses.size(); ++s) CHECK(std::abs(host.losses[s] - device.losses[s]) < tolerance);
    CHECK(again.losses == device.losses);
    REQUIRE(host.state.size() == device.state.size());
    for (std::size_t i = 0; i < host.state.size(); ++i) {
        check_close(device.state[i], host.state[i], tolerance);
        check_close(again.state[i], device.state[i], 0);
    }
}

/// Layers in C, of fewer digits, the rest in float: near the host's training, and the device's own again to the bit.
template <class D, class C>
void rounded_trains(double of_losses, double of_state) {
    const sgd optimizer{{.momentum = 0.9, .weight_decay = 1e-3}};
    const history<float> host = train<cpu, float>(optimizer, 0.05), device = train<D, float, C>(optimizer, 0.05),
                         again = train<D, float, C>(optimizer, 0.05);
    for (std::size_t s = 0; s < host.losses.size(); ++s) CHECK(std::abs(host.losses[s] - device.losses[s]) < of_losses);
    CHECK(again.losses == device.losses);
    REQUIRE(host.state.size() == device.state.size());
    for (std::size_t i = 0; i < host.state.size(); ++i) {
        check_close(device.state[i], host.state[i], of_state);
        check_close(again.state[i], device.state[i], 0);
    }
}
// Eight and eleven binary digits: 0.4 % and 0.05 % a rounding, some twenty of them one after the other.
template <class D>
void bfloat16_trains() {
    rounded_trains<D, bfloat16>(0.1, 0.15);
}
template <class D>
void float16_trains() {
    rounded_trains<D, float16>(0.1 / 8, 0.15 / 8);
}

template <class D, class T>
void sgd_trains() {
    same_training<D, T>(sgd{{.momentum = 0.9, .weight_decay = 1e-3, .nesterov = true}}, 0.05);
}
// Adam divides a gradient by its own size: of one that is 0 but for rounding, as a bias before a normalisation has,
// rounding chooses the sign, and the parameter moves by the rate or back, 3e-3 in three steps. ε above the rounding of
// gradients makes the update continuous: float's moves it by 1e-4 of the rate. In double the default is above it.
template <class T>
inline constexpr double smooth_eps = std::is_same_v<T, double> ? 1e-8 : 1e-3;

template <class D, class T>
void rows_train() {
    same_training<D, T, of_rows>(sgdw{{.weight_decay = 1e-3}}, 0.05);
    same_training<D, T, of_rows>(clipped{adamw{}, by_norm{0.5}}, 1e-3);
    same_training<D, T, of_rows>(clipped{lamb{}, by_norm{0.5}}, 1e-2);
}
template <class D, class T>
void clipped_adam_trains() {
    same_training<D, T>(clipped<adamw>{adamw{{.eps = smooth_eps<T>, .weight_decay = 0.01}}, by_norm{0.5}}, 1e-3);
}
template <class D, class T>
void lars_trains() {
    same_training<D, T>(clipped<lars, by_value>{lars{{.trust_coefficient = 0.01}}, by_value{0.1}}, 0.1);
}
template <class D, class T>
void lamb_trains() {
    same_training<D, T>(lamb{{.eps = smooth_eps<T>, .weight_decay = 0.01}}, 1e-3);
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

/// Every kind of layer that K-FAC has factors for: convolutions with stride, dilation, groups and bias, lookups, rows
/// that share a weight.
template <class T, class D>
sequential<T, D> curved_network() {
    sequential<T, D> all;
    all.add("words", embedding<T, D>({.num_embeddings = 11, .embedding_dim = 6}));
    all.add("each", linear<T, D>({.in = 6, .out = 8}));  // of every position
    all.add("norm", layer_norm<T, D>({.features = 8}));
    all.add("wide", conv<T, D>({.in = 8, .out = 8, .kernel = 3, .stride = 2, .pad = 2, .dilation = 2, .groups = 2}));
    all.add("tanh", activation_layer<T, D>(activation::tanh));
    all.add("point", conv<T, D>({.in = 8, .out = 4, .kernel = 1, .bias = false}));
    all.add("flatten", flatten<T, D>());
    all.add("out", linear<T, D>({.in = 36, .out = 5}));
    return all;
}

/// Parameters after four steps with K-FAC, on the host. C: what layers compute in.
template <class D, class T, class C = T>
std::vector<tensor<T>> kfac_trains(const kfac_config& config) {
    constexpr index_t batch = 6;
    auto model = curved_network<C, D>();
    arena<T, D> weights(model.parameters(), 4);
    bound_optimizer<sgd, T, D> step(sgd{{.momentum = 0.9}}, weights);
    kfac<T, D> curvature(weights, config);
    tensor<std::int32_t> labels({batch});
    for (index_t i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i % 5);
    const auto d_labels = tensor<std::int32_t, D>::copy_of(labels);
    for (std::uint32_t s = 0; s < 4; ++s) {
        tensor<T> ids({batch, 5, 5});
        for (index_t i = 0; i < ids.size(); ++i)
            ids[i] = static_cast<T>((i * 7 + static_cast<index_t>(s) * i % 5) % 11);
        saved_tensors<C, D> saved;
        pass_context p{.mode = mode::train, .random = {.seed = 5, .step = s}, .input_gradient = false};
        p.curvature = curvature.begin_step();
        curvature.last_micro_batch();
        auto y = cast<T>(model.forward(cast<C>(tensor<T, D>::copy_of(ids)), saved, p));
        auto [loss, dy] = cross_entropy{}(std::move(y), d_labels);
        weights.zero_grad();
        model.backward(cast<C>(std::move(dy)), saved, p);
        curvature.precondition(batch, 0.02);
        step.step(0.02);
    }
    std::vector<tensor<T>> state;
    for (const auto& [name, p] : weights.parameters()) state.push_back(p->value.on_host());
    return state;
}

template <class D, class T>
void same_kfac(const kfac_config& config, double tolerance = std::is_same_v<T, double> ? 1e-8 : 5e-3) {
    const auto host = kfac_trains<cpu, T>(config), device = kfac_trains<D, T>(config),
               again = kfac_trains<D, T>(config);
    REQUIRE(host.size() == device.size());
    for (std::size_t i = 0; i < host.size(); ++i) {
        check_close(device[i], host[i], tolerance);
        check_close(again[i], device[i], 0);
    }
}

template <class D, class T>
void kfac_directions() {
    const kfac_config often{
        .damping = 1e-2, .factor_update_interval = 1, .inverse_update_interval = 2, .form = kfac_form::eigen};
    const auto with = [&](auto change) {
        kfac_config c = often;
        change(c);
        same_kfac<D, T>(c);
    };
    with([](kfac_config&) {});
    with([](kfac_config& c) { c.form = kfac_form::inverse; });
    with([](kfac_config& c) { c.sharing = weight_sharing::reduce, c.length = direction_length::of_gradient; });
    with([](kfac_config& c) { c.scaling = kfac_scaling::kfac_pytorch, c.damping = 0.1; });
    with([](kfac_config& c) { c.spatial = kfac_spatial::uncorrelated, c.form = kfac_form::inverse; });
    with([](kfac_config& c) { c.sample = {.examples = 2, .positions = 3}, c.kl_clip = 0, c.norm_limit = 0.01; });
    with([](kfac_config& c) { c.max_size = 20; });  // some factors are diagonal
    with([](kfac_config& c) { c.max_size = 5, c.form = kfac_form::inverse; });
    const index_t most = std::exchange(numbers_gathered(D{}), 40);  // rows in several blocks
    with([](kfac_config& c) { c.sample.examples = 2; });
    numbers_gathered(D{}) = most;
    with([](kfac_config& c) { c.max_size = 20, c.form = kfac_form::inverse, c.skip = {"point"}; });
    if constexpr (std::is_same_v<T, float>) {  // rows of fewer digits: near the host's
        const auto host = kfac_trains<cpu, float>(often), device = kfac_trains<D, float, bfloat16>(often),
                   halves = kfac_trains<D, float, float16>(often);
        for (std::size_t i = 0; i < host.size(); ++i) check_close(device[i], host[i], 0.15);
        for (std::size_t i = 0; i < host.size(); ++i) check_close(halves[i], host[i], 0.15 / 8);
    }
}

/// T: what the device has convolutions for.
template <GridDevice D, class T>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"sgd", sgd_trains<D, T>},
                                       {"layers in bfloat16", bfloat16_trains<D>},
                                       {"layers in float16", float16_trains<D>},
                                       {"clipped adamw", clipped_adam_trains<D, T>},
                                       {"lars, clipped by value", lars_trains<D, T>},
                                       {"lamb", lamb_trains<D, T>},
                                       {"losses of elements", losses_of_elements<D, T>},
                                       {"K-FAC", kfac_directions<D, T>}};
    return laws;
}

/// In double, on any device: what needs no convolutions.
template <GridDevice D>
const std::vector<law>& in_double() {
    static const std::vector<law> laws{{"rows, double", rows_train<D, double>},
                                       {"losses of elements, double", losses_of_elements<D, double>}};
    return laws;
}

}  // namespace cairn::training_laws
