// Networks. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/library_laws.hpp"
#include "device/cuda/training_laws.hpp"

namespace cairn {

TEST_CASE("GPU: networks train as on the host", "[gpu]") { check_each(training_laws::all<cuda, float>()); }

}  // namespace cairn
