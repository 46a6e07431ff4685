// Layers, losses, and a network of them. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/layer_laws.hpp"
#include "device/cuda/library_laws.hpp"
#include "device/cuda/loss_laws.hpp"
#include "device/cuda/transformer_laws.hpp"

#include <cairn/device/cuda/attention_plans.hpp>

namespace cairn {

namespace {

void check(const std::vector<kernel_laws::law>& laws) {
    for (const auto& law : laws) SECTION(law.name) law.check();
}

}  // namespace

TEST_CASE("GPU: losses give the values and gradients of plain loops", "[gpu]") { check(loss_laws::all<cuda>()); }

TEST_CASE("GPU: the laws of layers hold", "[gpu]") { check(device_layer_laws::all<cuda, false>()); }

TEST_CASE("GPU: a transformer trains as on the host", "[gpu]") {
    SECTION("float") transformer_laws::trains<cuda, float>();
    SECTION("bfloat16") transformer_laws::trains<cuda, float, bfloat16>();
}

}  // namespace cairn
