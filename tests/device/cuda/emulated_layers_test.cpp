// Layers on the emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/layer_laws.hpp"

#include <cairn/device/choices.hpp>

namespace cairn {

TEST_CASE("GPU layers, emulated: the laws of layers hold", "[cuda]") {
    choices::global().set_policy(choice_policy::first);  // the host's convolutions are not measured
    check_each(device_layer_laws::all<emulated_gpu, true>());
}

}  // namespace cairn
