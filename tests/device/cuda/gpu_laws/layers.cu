// Layers, losses, and a network of them. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/layer_laws.hpp"
#include "device/cuda/library_laws.hpp"
#include "device/cuda/loss_laws.hpp"
#include "device/cuda/transformer_laws.hpp"
#include "device/cuda/transformer_xl_laws.hpp"

#include <cairn/device/cuda/attention_plans.hpp>

namespace cairn {

TEST_CASE("GPU: losses give the values and gradients of plain loops", "[gpu]") { check_each(loss_laws::all<cuda>()); }

TEST_CASE("GPU: the laws of layers hold", "[gpu]") { check_each(device_layer_laws::all<cuda, false>()); }

TEST_CASE("GPU: a transformer trains as on the host", "[gpu]") {
    SECTION("float") transformer_laws::trains<cuda, float>();
    SECTION("bfloat16") transformer_laws::trains<cuda, float, bfloat16>();
}

TEST_CASE("GPU: transformer-xl has the kernels and the training of the host", "[gpu]") {
    SECTION("kernels") transformer_xl_laws::kernels<cuda>();
    SECTION("float") transformer_xl_laws::trains<cuda, float>();
    SECTION("bfloat16") transformer_xl_laws::trains<cuda, float, bfloat16>();
}

}  // namespace cairn
