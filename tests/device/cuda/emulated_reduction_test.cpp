// Gradients of the emulated GPU, summed over ranks by messages that it makes.

#include "device/cuda/emulated_gpu.hpp"
#include "device/cuda/reduction_laws.hpp"

namespace cairn {

TEST_CASE("GPU reductions, emulated: compressed sums and states are the host's", "[cuda]") {
    check_each(reduction_laws::all<emulated_gpu>());
}

}  // namespace cairn
