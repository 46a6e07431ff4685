#include "nn/layer_laws.hpp"
#include "sanitized.hpp"

#include <cairn/models/autoencoder.hpp>
#include <cairn/models/cnn.hpp>
#include <cairn/models/cosmoflow.hpp>
#include <cairn/models/lenet.hpp>
#include <cairn/models/map_cnn.hpp>
#include <cairn/models/mlp.hpp>
#include <cairn/models/residual_mlp.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/models/unet.hpp>

namespace cairn {

namespace {

index_t parameters_of(sequential<float> net) {
    index_t n = 0;
    for (const auto& [name, p] : net.parameters()) n += p->shape.size();
    return n;
}

}  // namespace

TEST_CASE("models: published numbers of parameters", "[models]") {
    CHECK(parameters_of(lenet()) == 61'706);
    CHECK(parameters_of(resnet(18)) == 11'689'512);  // torchvision
    CHECK(parameters_of(resnet(34)) == 21'797'672);
    CHECK(parameters_of(resnet(50)) == 25'557'032);
    CHECK(parameters_of(resnet(18, resnet_config::stem::cifar, 10)) == 11'173'962);
    CHECK(parameters_of(resnet_cifar(20)) == 272'474);  // with projections
    CHECK(parameters_of(resnet_cifar(32)) == 466'906);
    CHECK(parameters_of(resnet_cifar(56)) == 855'770);
    CHECK(parameters_of(autoencoder()) == 2'837'314);
    CHECK(parameters_of(mlp({784, 100, 10})) == 79'510);
    // conv: 27 in out + out; dense of 2·2·2·256 → 128 → 64 → 3
    CHECK(parameters_of(cosmoflow()) == (27 * 4 * 16 + 16) + (27 * 16 * 32 + 32) + (27 * 32 * 64 + 64) +
                                            (27 * 64 * 128 + 128) + (27 * 128 * 256 + 256) + (2048 * 128 + 128) +
                                            (128 * 64 + 64) + (64 * 3 + 3));
    // The 2-D network of Ronneberger et al. as it is usually written, padded and without norm: 31.0 million.
    CHECK(parameters_of(unet({.filters = 64, .levels = 5, .dims = 2, .normalise = false})) == 31'030'658);
    const auto block = [](index_t in, index_t out) { return 27 * (in + out) * out + 4 * out; };  // with batch norm
    CHECK(parameters_of(unet({.filters = 4, .levels = 3, .classes = 3})) ==
          block(1, 4) + block(4, 8) + block(8, 16) + (8 * 16 * 8 + 8) + block(16, 8) + (8 * 8 * 4 + 4) + block(8, 4) +
              (4 * 3 + 3));
}

TEST_CASE("models: shapes", "[models]") {
    CHECK(lenet().output_shape({3, 28, 28, 1}) == shape{3, 10});
    CHECK(resnet(50).output_shape({2, 224, 224, 3}) == shape{2, 1000});
    CHECK(resnet_cifar(20, 100).output_shape({2, 32, 32, 3}) == shape{2, 100});
    CHECK(cosmoflow().output_shape({1, 64, 64, 64, 4}) == shape{1, 3});
    CHECK(cosmoflow({.size = 64, .channels = 1, .blocks = 4, .outputs = 1, .dims = 2}).output_shape({5, 64, 64, 1}) ==
          shape{5, 1});
    CHECK(autoencoder().output_shape({4, 28, 28, 1}) == shape{4, 784});
    CHECK(unet({.channels = 2, .classes = 4}).output_shape({2, 8, 12, 4, 2}) == shape{2, 8, 12, 4, 4});
    CHECK(unet({.levels = 1, .dims = 2}).output_shape({2, 7, 5, 1}) == shape{2, 7, 5, 2});
    CHECK_THROWS_WITH(unet({.levels = 2, .dims = 2}).output_shape({2, 7, 6, 1}), Catch::Contains("skip"));
    CHECK_THROWS_WITH(unet({.levels = 0}), Catch::Contains("0 levels"));
    CHECK_THROWS_WITH(cosmoflow({.size = 48}), Catch::Contains("48") && Catch::Contains("multiple of 32"));
    CHECK_THROWS_WITH(resnet_cifar(21), Catch::Contains("21"));
    CHECK_THROWS_WITH(resnet(101), Catch::Contains("101"));
    CHECK_THROWS_WITH(lenet().output_shape({3, 32, 32, 1}), Catch::Contains("fc1") && Catch::Contains("(3, 576)"));
    CHECK_THROWS_WITH(mlp({784, 10}).output_shape({3, 28, 27, 1}),
                      Catch::Contains("fc1") && Catch::Contains("784") && Catch::Contains("(3, 756)"));
    CHECK_THROWS_WITH(resnet(18).output_shape({3, 32, 32, 1}),
                      Catch::Contains("conv1") && Catch::Contains("(3, 32, 32, 1)"));
}

TEST_CASE("models: names of layers and parameters", "[models]") {
    sequential<float> net = resnet(18);
    CHECK(net.name(0) == "conv1");
    CHECK(net.name(3) == "layer1/0");
    std::set<std::string> names;
    for (const auto& [name, p] : net.parameters()) names.insert(name);
    CHECK(names.size() == net.parameters().size());
    CHECK(names.count("layer2/0/shortcut/conv/weight") == 1);
    CHECK(names.count("layer4/1/bn2/bias") == 1);

    sequential<float> u = unet({.filters = 2, .levels = 3});
    names.clear();
    for (const auto& [name, p] : u.parameters()) names.insert(name);
    CHECK(names.size() == u.parameters().size());
    CHECK(names.count("conv1/weight") == 1);
    CHECK(names.count("down/down/up/bias") == 1);
    CHECK(names.count("down/conv4/weight") == 1);
}

TEST_CASE("models: a block with zero last gamma starts as its shortcut", "[models]") {
    resnet_config c = resnet_cifar_config(8);
    c.zero_init_residual = true;
    sequential<float> net = resnet<float>(c);
    arena a(net.parameters(), 1);
    for (const auto& [name, p] : a.parameters())
        if (name.find("layer") == 0 && name.find("bn2/weight") != std::string::npos) CHECK(p->value[0] == 0.0f);
    saved_tensors<float> saved;
    pass_context evaluate;
    evaluate.mode = mode::evaluate;
    const tensor<float> x = laws::numbers<float>({1, 8, 8, 16}, 1);
    auto& block = net[2];  // layer1/0: the identity, then relu
    const tensor<float> y = block.forward(x.share(), saved, evaluate);
    for (index_t i = 0; i < y.size(); ++i) REQUIRE(y[i] == std::max(x[i], 0.0f));
}

namespace {

void check(laws::law_case c, int depth) {
    c.depth = depth;
    c.make16 = {};  // its rounding moves many numbers of a network across a kink, where gradients differ
    laws::check_laws(c);
}

}  // namespace

TEST_CASE("models: laws", "[laws][models]") {
    const auto check_flattened = [](laws::law_case c, int depth) {
        c.wrong = std::nullopt;  // the first layer takes any image, the second one complains about rows
        check(c, depth);
    };
    check_flattened(laws::make_case("mlp", {4, 3, 2}, [](auto t) { return mlp<decltype(t)>({6, 8, 5}); }), 4);
    check_flattened(laws::make_case("mlp with dropout", {4, 3, 2},
                                    [](auto t) {
                                        return mlp<decltype(t)>({6, 8, 5}, activation::tanh, 0.3);
                                    }),
                    5);
    for (const bool linear_path : {true, false})
        check_flattened(laws::make_case("residual mlp", {4, 3, 2},
                                        [=](auto t) {
                                            return residual_mlp<decltype(t)>(
                                                {.inputs = 6, .outputs = 3, .width = 5, .linear_path = linear_path});
                                        }),
                        16);
    check_flattened(laws::make_case("autoencoder", {3, 4, 4, 1},
                                    [](auto t) {
                                        return autoencoder<decltype(t)>({16, 9, 4});
                                    }),
                    8);
    check(laws::make_case("lenet", {2, 28, 28, 1}, [](auto t) { return lenet<decltype(t)>(); }), 12);
    check(laws::make_case("resnet 8", {2, 8, 8, 3}, [](auto t) { return resnet_cifar<decltype(t)>(8); }), 60);
    resnet_config small;
    small.form = resnet_config::stem::imagenet;
    small.widths = {4, 6};
    small.blocks = {2, 1};
    small.bottleneck = true;
    check(laws::make_case("bottleneck resnet", {2, 24, 20, 3}, [small](auto t) { return resnet<decltype(t)>(small); }),
          80);
    const cosmoflow_config cosmo{.size = 8, .channels = 2, .filters = 3, .blocks = 2, .dense = {12}};
    check(laws::make_case("cosmoflow", {2, 8, 8, 8, 2}, [cosmo](auto t) { return cosmoflow<decltype(t)>(cosmo); }), 12);
    check(laws::make_case("map_cnn", {3, 9, 11, 2},
                          [](auto t) {
                              return map_cnn<decltype(t)>({.in_channels = 2, .outputs = 2, .filters = {4, 6}});
                          }),
          20);
    laws::law_case profile = laws::make_case("cnn of a profile", {2, 40}, [](auto t) {
        return cnn<decltype(t)>({40},
                                {.filters = {3, 4}, .kernel = 5, .stride = 1, .pool = 2, .hidden = {6}, .outputs = 2});
    });
    profile.wrong = std::nullopt;  // what does not fit meets a layer behind
    check(profile, 20);
    check(laws::make_case("cnn of a text", {2, 12, 5},
                          [](auto t) {
                              return cnn<decltype(t)>(
                                  {12, 5},
                                  {.filters = {4}, .kernel = 3, .stride = 1, .global_pool = true, .outputs = 3});
                          }),
          12);
    const unet_config volume{.channels = 2, .filters = 2, .levels = 3, .classes = 3};
    check(laws::make_case("unet", {2, 4, 4, 8, 2}, [volume](auto t) { return unet<decltype(t)>(volume); }), 40);
    const unet_config picture{.filters = 3, .levels = 2, .classes = 2, .dims = 2, .normalise = false};
    check(laws::make_case("unet on images, no norm", {2, 6, 4, 1},
                          [picture](auto t) { return unet<decltype(t)>(picture); }),
          20);
    const unet_config globe{
        .filters = 2, .levels = 2, .dims = 2, .group_norms = true, .periodic = {false, true}, .interpolate = true};
    check(laws::make_case("unet of a periodic axis, by interpolation, group norm", {2, 4, 6, 1},
                          [globe](auto t) { return unet<decltype(t)>(globe); }),
          20);
    const cosmoflow_config image{
        .size = 8, .channels = 1, .filters = 4, .blocks = 2, .dense = {8}, .outputs = 1, .dims = 2, .normalise = true};
    check(laws::make_case("cosmoflow on images, normalised", {3, 8, 8, 1},
                          [image](auto t) { return cosmoflow<decltype(t)>(image); }),
          24);
}

namespace {

/// Ten steps of plain gradient descent on Σ (y - target)² / n; returns the first and the last loss.
std::pair<double, double> train(sequential<float> net, shape in, double rate) {
    arena<float> a(net.parameters(), 3);
    const tensor<float> x = laws::numbers<float>(in, 1), target = laws::numbers<float>(net.output_shape(in), 2);
    saved_tensors<float> saved;
    pass_context p;
    p.input_gradient = false;
    double first = 0, last = 0;
    for (int step = 0; step < 10; ++step) {
        tensor<float> y = net.forward(x.share(), saved, p);
        const auto n = static_cast<double>(y.size());
        last = 0;
        for (index_t i = 0; i < y.size(); ++i) {
            const float d = y[i] - target[i];
            last += double(d) * double(d) / n;
            y[i] = static_cast<float>(2 * double(d) / n);
        }
        if (step == 0) first = last;
        a.zero_grad();
        net.backward(std::move(y), saved, p);
        CHECK(saved.empty());
        for_each([rate](float& w, float g) { w -= static_cast<float>(rate) * g; }, a.values(), a.grads());
    }
    return {first, last};
}

}  // namespace

TEST_CASE("models: the loss falls", "[models]") {
    const auto falls = [](const char* name, sequential<float> net, shape in, double rate) {
        const auto [first, last] = train(std::move(net), in, rate);
        INFO(name << ": loss " << first << " at first, " << last << " after ten steps");
        CHECK(last < 0.8 * first);
    };
    autotune_cache::global().set_policy(autotune_policy::first);
    falls("mlp", mlp({12, 32, 4}), {8, 12}, 0.5);
    falls("residual mlp", residual_mlp({.inputs = 12, .outputs = 4, .width = 32}), {8, 12}, 0.05);
    falls("autoencoder", autoencoder({36, 24, 8}), {4, 6, 6, 1}, 2.0);
    falls("lenet", lenet(), {4, 28, 28, 1}, 0.5);
    falls("resnet 20", resnet_cifar(20), {4, 16, 16, 3}, 0.02);
    falls("resnet 18", resnet(18, resnet_config::stem::imagenet, 10),
          {4, test::sanitized ? 32 : 64, test::sanitized ? 32 : 64, 3}, 0.01);
    falls("cosmoflow", cosmoflow({.size = 16, .filters = 4, .blocks = 3, .dense = {16}, .dropout = 0}),
          {4, 16, 16, 16, 4}, 0.2);
    falls("unet", unet({.filters = 4, .levels = 3}), {2, 8, 8, 8, 1}, 0.5);
}

}  // namespace cairn
