// Optimizers, and networks in double. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/library_laws.hpp"
#include "device/cuda/optimizer_laws.hpp"
#include "device/cuda/training_laws.hpp"

namespace cairn {

TEST_CASE("GPU: optimizers are plain loops, can be resumed and clipped", "[gpu]") {
    check_each(optimizer_laws::all<cuda>());
}

TEST_CASE("GPU: networks in double train as on the host", "[gpu]") { check_each(training_laws::in_double<cuda>()); }

}  // namespace cairn
