// The kernels of GPUs on an emulated one.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/kernel_laws.hpp"

namespace cairn {

TEST_CASE("GPU kernels, emulated: results are the host's, threads forwards and backwards", "[cuda]") {
    for (const auto& law : kernel_laws::all<emulated_gpu>()) SECTION(law.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        emulated_gpu::backwards = backwards;
        law.check();
        emulated_gpu::backwards = false;
    }
}

}  // namespace cairn
