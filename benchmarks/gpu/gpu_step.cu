// Training steps of a network on generated data that lie on the GPU: images a second, and the driver's figure of memory. One line of JSON.
//
//   build/cuda/benchmarks/gpu_step resnet18|resnet50 [BATCH] [exact|tf32] [STEPS]

#include "timing.hpp"

#include <cairn/core/arena.hpp>
#include <cairn/device/cuda/activation.hpp>
#include <cairn/device/cuda/batch_norm.hpp>
#include <cairn/device/cuda/conv.hpp>
#include <cairn/device/cuda/dropout.hpp>
#include <cairn/device/cuda/gemm.hpp>
#include <cairn/device/cuda/layer_norm.hpp>
#include <cairn/device/cuda/pool.hpp>
#include <cairn/device/cuda/softmax.hpp>
#include <cairn/models/resnet.hpp>
#include <cairn/nn/loss/cross_entropy.hpp>
#include <cairn/optim/sgd.hpp>

#include <cstdio>
#include <string>

namespace cairn {

namespace {

void run(int depth, index batch, int steps) {
    std::size_t before = 0, after = 0, total = 0;
    check(cudaMemGetInfo(&before, &total), "asking for memory");
    auto model = resnet<float, cuda>(depth);
    arena<float, cuda> weights(model.params(), 1);
    optimizer_over<sgd, float, cuda> optimizer(sgd{{.momentum = 0.9, .weight_decay = 1e-4}}, weights);
    tensor<float> images({batch, 224, 224, 3});
    const random_stream random{1, 2, 3};
    for (index i = 0; i < images.size(); ++i) images[i] = random.uniform(static_cast<std::uint64_t>(i)) - 0.5f;
    tensor<std::int32_t> labels({batch});
    for (index i = 0; i < batch; ++i) labels[i] = static_cast<std::int32_t>(i % 1000);
    const auto x = tensor<float, cuda>::copy_of(images);
    const auto y = tensor<std::int32_t, cuda>::copy_of(labels);
    tape<float, cuda> tape;
    double loss = 0;
    std::uint32_t number = 0;
    const auto step = [&] {
        const pass p{.mode = mode::train, .seed = 1, .step = number++, .input_gradient = false};
        auto [value, dy] = cross_entropy{}(model.forward(x.share(), tape, p), y);
        loss = value;
        weights.zero_grad();
        model.backward(std::move(dy), tape, p);
        optimizer.step(0.01);
    };
    for (int i = 0; i < 3; ++i) step();
    const double seconds = gpu_benchmark::seconds_of(step, steps);
    check(cudaMemGetInfo(&after, &total), "asking for memory");
    std::printf(
        "{\"network\":\"resnet%d\",\"batch\":%lld,\"products\":\"%s\",\"seconds_a_step\":%.5f,\"images_per_s\":%.1f,"
        "\"loss\":%.4f,"
        "\"driver_megabytes\":%.0f,\"pool_peak_megabytes\":%.0f}\n",
        depth, static_cast<long long>(batch), gpu_float_products() == float_products::tf32 ? "tf32" : "exact", seconds,
        static_cast<double>(batch) / seconds, loss, static_cast<double>(before - after) / 1e6,
        static_cast<double>(cuda::memory().total().peak) / 1e6);
}

}  // namespace

}  // namespace cairn

int main(int argc, char** argv) {
    using namespace cairn;
    try {
        const std::string network = argc > 1 ? argv[1] : "resnet50", products = argc > 3 ? argv[3] : "tf32";
        require(network == "resnet18" || network == "resnet50", "network ", network, "; resnet18 or resnet50");
        require(products == "tf32" || products == "exact", "products ", products, "; exact or tf32");
        cuda::choose(0);
        gpu_float_products() = products == "tf32" ? float_products::tf32 : float_products::exact;
        run(network == "resnet18" ? 18 : 50, argc > 2 ? std::stoll(argv[2]) : 256, argc > 4 ? std::stoi(argv[4]) : 15);
        return 0;
    } catch (const std::exception& e) {
        std::fprintf(stderr, "gpu_step: %s\n", e.what());
        return 1;
    }
}
