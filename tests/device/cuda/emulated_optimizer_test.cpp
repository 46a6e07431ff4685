// Optimizers on the emulated GPU.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/optimizer_laws.hpp"

namespace cairn {

TEST_CASE("GPU optimizers, emulated: plain loops, layout, resumption, clipping", "[cuda]") {
    for (const auto& law : optimizer_laws::all<emulated_gpu>()) SECTION(law.name) law.check();
}

}  // namespace cairn
