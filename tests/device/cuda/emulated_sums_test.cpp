// Reductions and elementwise kernels on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/pointwise_laws.hpp"
#include "device/cuda/sum_laws.hpp"

namespace cairn {

TEST_CASE("GPU reductions, emulated: results are those of long double", "[cuda]") {
    check_both_ways(sum_laws::all<emulated_gpu>());
}

TEST_CASE("GPU reductions, emulated: more blocks than one block has threads", "[cuda]") {
    sum_laws::long_sums<emulated_gpu>();
}

TEST_CASE("GPU elementwise kernels, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(pointwise_laws::all<emulated_gpu>());
}

}  // namespace cairn
