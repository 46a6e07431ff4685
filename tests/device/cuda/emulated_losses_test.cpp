// Losses on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/loss_laws.hpp"

namespace cairn {

TEST_CASE("GPU losses, emulated: values and gradients are those of plain loops", "[cuda]") {
    check_both_ways(loss_laws::all<emulated_gpu>());
}

}  // namespace cairn
