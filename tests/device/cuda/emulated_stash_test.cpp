// Activations packed by kernels of GPUs, on an emulated one, its threads forwards and backwards.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/stash_laws.hpp"

namespace cairn {

TEST_CASE("GPU activations, emulated: packed as on the host, byte for byte", "[cuda]") {
    check_both_ways(stash_laws::all<emulated_gpu>());
}

}  // namespace cairn
