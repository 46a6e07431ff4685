// Convolutions as products of patches on the emulated GPU.

#include "device/cuda/both_ways.hpp"
#include "device/cuda/convolution_laws.hpp"
#include "device/cuda/emulated_libraries.hpp"

namespace cairn {

TEST_CASE("GPU convolutions by products of patches, emulated: results are those of plain loops", "[cuda]") {
    check_both_ways(convolution_laws::all<emulated_gpu>());
}

}  // namespace cairn
