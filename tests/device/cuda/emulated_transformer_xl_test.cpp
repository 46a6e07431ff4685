// Transformer-XL trains on the emulated GPU as on the host.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/transformer_xl_laws.hpp"

namespace cairn {

TEST_CASE("GPU transformer-xl, emulated: kernels, losses and parameters are the host's", "[cuda][transformer-xl]") {
    SECTION("kernels") transformer_xl_laws::kernels<emulated_gpu>();
    SECTION("double") transformer_xl_laws::trains<emulated_gpu, double>();
    SECTION("bfloat16") transformer_xl_laws::trains<emulated_gpu, float, bfloat16>();
}

}  // namespace cairn
