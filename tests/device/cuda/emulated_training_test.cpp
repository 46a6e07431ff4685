// Networks train on the emulated GPU as on the host; what touches its memory from the host ends the program.

#include "device/cuda/emulated_libraries.hpp"
#include "device/cuda/training_laws.hpp"

namespace cairn {

TEST_CASE("GPU training, emulated: losses, parameters and running statistics are the host's", "[cuda]") {
    check_each(training_laws::all<emulated_gpu, double>());
    check_each(training_laws::in_double<emulated_gpu>());
}

}  // namespace cairn
