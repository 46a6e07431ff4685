// The trainer and its recorded steps. On a GPU; the same laws run on an emulated one (emulated_*_test.cpp).

#include "device/cuda/library_laws.hpp"
#include "device/cuda/recorded_laws.hpp"
#include "device/cuda/trainer_laws.hpp"

namespace cairn {

TEST_CASE("GPU: the trainer names what is not finite; first values and recomputed layers are the host's", "[gpu]") {
    check_each(trainer_laws::all<cuda, float>());
}

TEST_CASE("GPU: recorded steps have the bits of steps that are launched one by one", "[gpu]") {
    check_each(recorded_laws::all<cuda>());
}

}  // namespace cairn
