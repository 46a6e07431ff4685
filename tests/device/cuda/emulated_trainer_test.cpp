// Training steps on the emulated GPU: what they say, begin with, and keep.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/trainer_laws.hpp"

namespace cairn {

TEST_CASE("GPU trainer, emulated: what is not finite is named, first values and recomputed layers", "[cuda]") {
    check_each(trainer_laws::all<emulated_gpu, double>());
    SECTION("on the host") trainer_laws::what_is_not_finite<cpu>();
}

}  // namespace cairn
