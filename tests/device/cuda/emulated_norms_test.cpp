// Normalisation on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/norm_laws.hpp"

namespace cairn {

TEST_CASE("GPU normalisation, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(norm_laws::all<emulated_gpu>());
}

}  // namespace cairn
