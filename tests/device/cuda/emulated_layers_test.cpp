// Layers on the emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/layer_laws.hpp"

#include <cairn/device/autotune.hpp>

namespace cairn {

TEST_CASE("GPU layers, emulated: the laws of layers hold", "[cuda]") {
    autotune_cache::global().set_policy(autotune_policy::first);  // the host's convolutions are not measured
    check_each(device_layer_laws::all<emulated_gpu, true>());
}

}  // namespace cairn
