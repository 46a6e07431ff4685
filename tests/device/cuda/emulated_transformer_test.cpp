// A transformer trains on the emulated GPU as on the host.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/transformer_laws.hpp"

namespace cairn {

TEST_CASE("GPU transformer, emulated: losses and parameters are the host's", "[cuda][transformer]") {
    SECTION("double") transformer_laws::trains<emulated_gpu, double>();
    SECTION("bfloat16") transformer_laws::trains<emulated_gpu, float, bfloat16>();
}

}  // namespace cairn
