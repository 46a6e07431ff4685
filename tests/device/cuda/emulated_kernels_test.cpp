// The kernels of GPUs on an emulated one.

#include "device/cuda/curvature_laws.hpp"
#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/kernel_laws.hpp"

namespace cairn {

namespace {

void check_both_ways(const std::vector<kernel_laws::law>& laws) {
    for (const auto& law : laws) SECTION(law.name)
    for (const bool backwards : {false, true}) {
        CAPTURE(backwards);
        emulated_gpu::backwards = backwards;
        law.check();
        emulated_gpu::backwards = false;
    }
}

}  // namespace

TEST_CASE("GPU kernels, emulated: results are the host's, threads forwards and backwards", "[cuda]") {
    check_both_ways(kernel_laws::all<emulated_gpu>());
}

TEST_CASE("GPU kernels of curvature, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(curvature_laws::all<emulated_gpu>());
}

}  // namespace cairn
