// Pooling, softmax and what kernels refuse, on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/pool_laws.hpp"
#include "device/cuda/refusal_laws.hpp"
#include "device/cuda/softmax_laws.hpp"

namespace cairn {

TEST_CASE("GPU pooling, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(pool_laws::all<emulated_gpu>());
}

TEST_CASE("GPU softmax, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(softmax_laws::all<emulated_gpu>());
}

TEST_CASE("GPU kernels, emulated: refuse what the host refuses", "[cuda]") {
    check_both_ways(refusal_laws::all<emulated_gpu>());
}

}  // namespace cairn
