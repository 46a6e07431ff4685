// The kernels of GPUs on an emulated one.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/curvature_laws.hpp"

namespace cairn {

TEST_CASE("GPU kernels, emulated: results are the host's, threads forwards and backwards", "[cuda]") {
    check_both_ways(kernel_laws::all<emulated_gpu>());
}

TEST_CASE("GPU kernels of curvature, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(curvature_laws::all<emulated_gpu>());
}

}  // namespace cairn
