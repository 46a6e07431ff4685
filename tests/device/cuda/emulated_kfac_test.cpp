// K-FAC on the emulated GPU.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/kfac_laws.hpp"

namespace cairn {

TEST_CASE("GPU K-FAC, emulated: explicit solves, batches that are not finite, resumption", "[cuda]") {
    for (const auto& law : kfac_laws::all<emulated_gpu, double>()) SECTION(law.name) law.check();
    SECTION("convolutions, float") kfac_laws::convolutions<emulated_gpu, float>();
}

}  // namespace cairn
