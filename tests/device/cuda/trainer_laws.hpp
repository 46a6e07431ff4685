#pragma once
// What a training step on a grid device says of losses that are not finite, what its parameters begin with, and what is
// kept for backward. The device's products and convolutions are included before.

#include "device/cuda/training_laws.hpp"

#include <cairn/objectives/regression.hpp>
#include <cairn/train/trainer.hpp>

#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace cairn::trainer_laws {

template <class T>
bool same_bits(const tensor<T>& a, const tensor<T>& b) {
    return a.shape() == b.shape() && std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.bytes())) == 0;
}

/// Three layers of rows, for two values a sample, and the trainer of them.
template <class D>
struct three_layers {
    sequential<float, D> net;
    std::unique_ptr<arena<float, D>> weights;
    std::unique_ptr<trainer<D>> training;

    three_layers() {
        net.add("first", linear<float, D>({.in = 4, .out = 5}));
        net.add("second", linear<float, D>({.in = 5, .out = 6}));
        net.add("relu", activation_layer<float, D>(activation::relu));
        net.add("last", linear<float, D>({.in = 6, .out = 2}));
        weights = std::make_unique<arena<float, D>>(net.parameters(), 1);
        const regression goal{{target_kind::values, {"a", "b"}, {0, 0}, {1, 1}}};
        training = std::make_unique<trainer<D>>(model_stages<D, float>(net, *weights),
                                                update_rule<D>{bound_optimizer(sgd{}, *weights), constant(0.1)}, goal);
    }

    static batch samples() {
        batch b;
        b.x = kernel_laws::drawn<float>({3, 4}, 70);
        b.targets = kernel_laws::drawn<float>({3, 2}, 71);
        b.count = b.global_count = 3;
        return b;
    }
    void fill(const std::string& name, float value) {
        for (const auto& [n, p] : weights->parameters()) {
            if (n != name) continue;
            for_each(functors::assign<float>{value}, p->value);
        }
    }
};

/// The step that fails is named, and the first thing that is to blame: target, input, parameter, layer. Nothing is
/// updated.
template <class D>
void what_is_not_finite() {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const auto said = [](auto&& spoil) {
        three_layers<D> all;
        CHECK(std::isfinite(all.training->step(all.samples()).loss));
        batch b = all.samples();
        spoil(all, b);
        const tensor<float> before = all.weights->values().on_host();
        std::string what;
        try {
            all.training->step(b);
        } catch (const error& e) {
            what = e.what();
        }
        CHECK(same_bits(all.weights->values().on_host(), before));
        CHECK(all.training->steps() == 1);
        CHECK_THAT(what, Catch::Contains("step 2: loss is "));
        return what;
    };
    using these = three_layers<D>;
    CHECK_THAT(said([&](these&, batch& b) { b.targets[3] = b.x[1] = nan; }),
               Catch::Contains("a target of the batch is not finite"));
    CHECK_THAT(said([&](these&, batch& b) { b.x[5] = nan; }),
               Catch::Contains("the input batch holds a value that is not finite"));
    CHECK_THAT(said([&](these& all, batch&) { all.fill("second/bias", nan); }),
               Catch::Contains("parameter second/bias is not finite") && Catch::Contains("lower the learning rate"));
    CHECK_THAT(said([&](these& all, batch& b) {
                   all.fill("second/bias", std::numeric_limits<float>::max());
                   all.fill("last/weight", 4);
                   for (float& x : b.x.span()) x = 0;
               }),
               Catch::Contains("the first layer with a non-finite output is last (linear 6 -> 2)"));
    CHECK_THAT(said([&](these& all, batch&) {
                   all.fill("first/weight", 3e20f);
                   all.fill("second/weight", 3e20f);
               }),
               Catch::Contains("the first layer with a non-finite output is second (linear 5 -> 6)"));
}

/// Parameters begin with the host's numbers, whatever they are drawn from.
template <class D, class T>
void first_values() {
    using net = training_laws::of_images;
    auto here = net::network<T, cpu>(5);
    auto there = net::network<T, D>(5);
    arena<T> host(here.parameters(), 3);
    arena<T, D> device(there.parameters(), 3);
    REQUIRE(host.count() == device.count());
    CHECK(same_bits(device.values().on_host(), host.values().on_host()));
    device.zero_grad();
    const tensor<T> none = device.grads().on_host();
    CHECK(std::all_of(none.data(), none.data() + none.size(), [](T v) { return v == 0; }));
}

template <class D>
void first_non_finite_element() {
    auto t = kernel_laws::drawn<float>({3, 5}, 72);
    CHECK(first_non_finite("w", tensor<float, D>::copy_of(t)).empty());
    CHECK(!first_non_finite(tensor<float, D>::copy_of(t)));
    t[11] = -std::numeric_limits<float>::infinity(), t[13] = std::numeric_limits<float>::quiet_NaN();
    CHECK(first_non_finite("w", tensor<float, D>::copy_of(t)) == "w (3, 5): element 11 is -inf");
    CHECK(*first_non_finite(tensor<float, D>::copy_of(t)) == 11);
}

/// Layers that run again in backward give the bits of layers whose inputs were kept, for less memory.
template <class D, class T>
void recomputed() {
    std::vector<std::vector<tensor<T>>> results;
    std::vector<index_t> kept;
    for (const bool again : {false, true}) {
        auto net = training_laws::of_images::network<T, D>(5);
        arena<T, D> weights(net.parameters(), 1);
        weights.zero_grad();
        if (again) net.recompute({{0, 3}, {4, 9}});
        const auto x = tensor<T, D>::copy_of(kernel_laws::drawn<T>(training_laws::of_images::in(2), 73));
        const index_t before = D::memory().activations().live;
        results.emplace_back();
        for (std::uint32_t step = 0; step < 2; ++step) {
            saved_tensors<T, D> saved;
            const pass_context p{.random = {.seed = 5, .step = step}};
            auto y = net.forward(x.clone(), saved, p);
            if (step == 0) kept.push_back(D::memory().activations().live - before);
            results.back().push_back(y.on_host());
            results.back().push_back(net.backward(std::move(y), saved, p).on_host());
        }
        results.back().push_back(weights.grads().on_host());
        for (const auto& [name, t] : net.buffers()) results.back().push_back(t->on_host());
    }
    REQUIRE(results[0].size() == results[1].size());
    for (std::size_t i = 0; i < results[0].size(); ++i) {
        CAPTURE(i);
        CHECK(same_bits(results[0][i], results[1][i]));
    }
    CHECK(2 * kept[1] < kept[0]);
}

/// T: what the device has convolutions for.
template <GridDevice D, class T>
const std::vector<law>& all() {
    static const std::vector<law> laws{{"what is not finite", what_is_not_finite<D>},
                                       {"first values, float", first_values<D, float>},
                                       {"first values", first_values<D, T>},
                                       {"first element that is not finite", first_non_finite_element<D>},
                                       {"recomputed layers", recomputed<D, T>}};
    return laws;
}

}  // namespace cairn::trainer_laws
