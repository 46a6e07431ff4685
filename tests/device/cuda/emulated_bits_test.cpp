// Bits of results on the emulated GPU: the same from run to run, and those of float in bfloat16.

#include "device/cuda/bfloat16_laws.hpp"
#include "device/cuda/both_ways.hpp"
#include "device/cuda/repeat_laws.hpp"

namespace cairn {

TEST_CASE("GPU kernels, emulated: the same bits again, and with the threads in the other order", "[cuda]") {
    const auto forwards = repeat_laws::of_all_kernels<emulated_gpu>();
    emulated_gpu::backwards = true;
    const auto backwards = repeat_laws::of_all_kernels<emulated_gpu>();
    emulated_gpu::backwards = false;
    forwards.check_same(backwards);
    repeat_laws::of_all_kernels<emulated_gpu>().check_same(forwards);
}

TEST_CASE("GPU kernels in bfloat16, emulated: results of float, rounded once", "[cuda]") {
    check_both_ways(bfloat16_laws::all<emulated_gpu>());
}

}  // namespace cairn
